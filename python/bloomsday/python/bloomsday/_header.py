"""`Header`: what a blob says about itself."""

from __future__ import annotations

import datetime
from typing import NamedTuple


class Header(NamedTuple):
    """What a blob says about itself."""

    filter: str
    day: datetime.date
    digest: str
    layout: str
    ids: int
    ids_estimated: bool
    bytes: int
    bits: int
    probes: int
    fpp_target: float
    fpp_measured: float
    fill: float
    format: int
    id: str
    """What is hashed of an ID: its "bytes", or a "url" in its normal form."""
