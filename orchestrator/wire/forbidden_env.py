"""Environment variables that change what runs rather than how (R27, R71, R72).

The agent may run engines as root, so a profile's ``env`` would be a way to run code on every node.
One list, used where a profile is defined and again on the node before the process starts.
"""

from __future__ import annotations

from collections.abc import Iterable

_PREFIXES = ("LD_", "PYTHON", "PERL5", "GCONV_", "BASH_FUNC_", "DYLD_", "MALLOC_", "GIT_")
_NAMES = frozenset(
    {
        "PATH",
        "BASH_ENV",
        "ENV",
        "IFS",
        "SHELLOPTS",
        "BASHOPTS",
        "PS4",
        "PROMPT_COMMAND",
        "NODE_OPTIONS",
        "NODE_PATH",
        "RUBYOPT",
        "RUBYLIB",
        "PERLLIB",
        "HOME",
        "TMPDIR",
        "LOCPATH",
        "NLSPATH",
        "HOSTALIASES",
        "RESOLV_HOST_CONF",
        "GLIBC_TUNABLES",
        "OPENSSL_CONF",
        "OPENSSL_MODULES",
        "OPENSSL_ENGINES",
        "SSLKEYLOGFILE",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "CUDA_INJECTION64_PATH",
        "CUDA_INJECTION32_PATH",
        "NVIDIA_VISIBLE_DEVICES",
        "GGML_BACKEND_PATH",
        "VLLM_PLUGINS",
        "VLLM_SERVER_DEV_MODE",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
        "VLLM_ALLOW_INSECURE_SERIALIZATION",
        "VLLM_API_KEY",
        "VLLM_HOST_IP",
        "VLLM_PORT",
        "NCCL_SOCKET_IFNAME",
        "GLOO_SOCKET_IFNAME",
        "NCCL_NET_PLUGIN",
        "NCCL_TUNER_PLUGIN",
        "NCCL_PROFILER_PLUGIN",
        "OMPI_MCA_mca_base_component_path",
    }
)


def is_forbidden(name: str) -> bool:
    """Whether a profile may not set this variable. Case is ignored; a name that is none is forbidden."""
    upper = name.upper()
    if not name or "=" in name or "\0" in name:
        return True
    return upper in _UPPER_NAMES or upper.startswith(_PREFIXES)


_UPPER_NAMES = frozenset(name.upper() for name in _NAMES)


def forbidden(names: Iterable[str]) -> list[str]:
    """Those of ``names`` that a profile may not set, in order."""
    return [name for name in names if is_forbidden(name)]
