"""Rows of the hashes ``replicas`` and ``models`` as records; one that cannot be read is named and left."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

from orchestrator.reconcile.records import (
    ModelState,
    Record,
    decode_model_state,
    decode_record,
)

log = logging.getLogger("llmgw.orchestrator")


def records(rows: Mapping[str, str]) -> list[Record]:
    """The replica records. A row that cannot be read stays in the store; its engines are unlisted and
    stay too, until a Full names them."""
    read: list[Record] = []
    for name, text in rows.items():
        try:
            read.append(decode_record(text.encode()))
        except msgspec.MsgspecError as error:
            log.error("the record of replica %s cannot be read and is left alone: %s", name, error)
    return read


def model_states(rows: Mapping[str, str]) -> dict[str, ModelState]:
    """The models' run-time states; one that cannot be read begins anew."""
    read: dict[str, ModelState] = {}
    for name, text in rows.items():
        try:
            read[name] = decode_model_state(text.encode())
        except msgspec.MsgspecError as error:
            log.error("the state of model %s cannot be read and begins anew: %s", name, error)
    return read
