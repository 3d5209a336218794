"""A cluster with something of everything, as the admin API shows it."""

from __future__ import annotations

from typing import Any

GB = 10**9

NODES: list[dict[str, Any]] = [
    {
        "name": "gpu-rack1-n01",
        "state": "ready",
        "seen_s": 1.2,
        "fabric": "ib-a",
        "cards": [{"type": "H100-80GB", "held": 7, "total": 8}],
        "cpus": 96,
        "cpus_reserved": 64,
        "memory_total": 1024 * GB,
        "memory_reserved": 512 * GB,
        "disk_free": 3500 * GB,
        "replicas": 3,
        "version": "0.1.0",
        "labels": {"zone": "a", "ram": "1t"},
    },
    {
        "name": "gpu-rack1-n07",
        "state": "unreachable",
        "seen_s": 134.0,
        "fabric": "ib-a",
        "cards": [{"type": "H100-80GB", "held": 8, "total": 8}],
        "cpus": 96,
        "cpus_reserved": 96,
        "replicas": 3,
        "version": "0.1.0",
        "note": "3 replicas kept; Lost in 166 s",
    },
    {"name": "old", "state": "unheard", "cards": [], "replicas": 0, "cpus_reserved": 0},
]

MODELS: list[dict[str, Any]] = [
    {
        "name": "coder-14b",
        "state": "pending",
        "ready": 0,
        "wanted": 1,
        "running": 0,
        "waiting": 2,
        "class": "standard",
        "note": "no node fits: needs 24 GB on one card, best free 21.3 GB (gpu-rack1-n01)",
    },
    {
        "name": "qwen3-8b",
        "state": "ready",
        "ready": 3,
        "wanted": 3,
        "running": 41,
        "waiting": 0,
        "cache_use": 0.61,
        "class": "critical",
        "source": "hf:Qwen/Qwen3-8B",
        "context_length": 32768,
        "description": "General chat, good Swedish.",
    },
    {"name": "tiny", "state": "idle", "ready": 0, "wanted": 0, "class": "opportunistic"},
]

REPLICAS: list[dict[str, Any]] = [
    {
        "id": "1h8m2k3pq",
        "model": "qwen3-8b",
        "state": "ready",
        "age_s": 90000.0,
        "nodes": ["gpu-rack1-n01"],
        "cards": ["GPU-1", "GPU-2"],
        "gpu": "H100-80GB",
        "engine": "vllm",
        "running": 14,
        "restarts": 0,
        "pids": [4711],
        "note": "stale profile",
    },
    {
        "id": "1h8m2k3pr",
        "model": "coder-14b",
        "state": "starting",
        "age_s": 12.0,
        "nodes": ["gpu-rack1-n01", "gpu-rack1-n02"],
        "cards": [],
        "engine": "llama.cpp",
        "restarts": 2,
        "note": "loading",
    },
]

STATUS: dict[str, Any] = {
    "cluster": "acme",
    "role": "leader",
    "instance": "orch-1",
    "leader": {"instance": "orch-1", "epoch": 5, "since_s": 345600.0},
    "store": {"ok": True},
    "routers": 2,
    "endpoints_version": 218,
    "as_of": "2026-12-01T12:04:31.000Z",
    "settled": True,
    "mass_silence": False,
    "problems": [
        {
            "tone": "amber",
            "subject": "gpu-rack1-n07",
            "what": "unreachable",
            "why": "silent for 134 s, 3 replicas kept",
            "verb": "node show gpu-rack1-n07",
        },
        {
            "tone": "red",
            "subject": "coder-14b",
            "what": "pending",
            "why": "no node fits: needs 24 GB on one card, best free 21.3 GB (gpu-rack1-n01)",
            "verb": "explain coder-14b",
        },
    ],
    "nodes": {"ready": 1, "unreachable": 1, "unheard": 1},
    "drained": 0,
    "cards": [{"type": "H100-80GB", "held": 15, "total": 16}],
    "cpus": 192,
    "cpus_reserved": 160,
    "memory_total": 1024 * GB,
    "memory_reserved": 512 * GB,
    "models": MODELS,
}

EXPLAIN: list[dict[str, Any]] = [
    {
        "profile": 0,
        "node": "gpu-rack1-n01",
        "verdict": "cards",
        "needs": "1 card with 24 GB",
        "has": "GPU-1: 18 GB free, 60 held by pid 4711 outside; 7 booked",
    },
    {"profile": 0, "node": "old", "verdict": "state", "needs": "ready", "has": "unheard"},
]
