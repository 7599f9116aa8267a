"""Fits on a Dask cluster, for tables that one machine does not hold.

The public name of this module is ``onebit.dask``.
"""

from __future__ import annotations

from onebit.completers.clustered import fit, local_client
from onebit.completers.parted import PartedModel, fit_parts
from onebit.engine.cluster.client import ClusterError

__all__ = ["ClusterError", "PartedModel", "fit", "fit_parts", "local_client"]
