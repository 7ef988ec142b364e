"""Attention building blocks that can be inspected: usable on their own, with nothing else of this package."""

from tsattn.attention.kernel import Attended, attend, attention_weights
from tsattn.attention.masks import both, causal_mask, key_mask, local_mask
from tsattn.attention.multihead import MultiHeadAttention
from tsattn.attention.normalisers import NORMALISERS, entmax15, softmax, sparsemax
from tsattn.attention.positions import LearntPositions, rotate, sinusoidal
from tsattn.attention.scores import (
    SCORES,
    AdditiveScore,
    CosineScore,
    GeneralScore,
    LocationScore,
    Score,
    additive,
    build_score,
    cosine,
    dot,
    general,
    location,
    scaled_dot,
)
from tsattn.attention.sparse import SparseAttended, local_attend, prob_sparse_attend

__all__ = [
    "NORMALISERS",
    "SCORES",
    "AdditiveScore",
    "Attended",
    "CosineScore",
    "GeneralScore",
    "LearntPositions",
    "LocationScore",
    "MultiHeadAttention",
    "Score",
    "SparseAttended",
    "additive",
    "attend",
    "attention_weights",
    "both",
    "build_score",
    "causal_mask",
    "cosine",
    "dot",
    "entmax15",
    "general",
    "key_mask",
    "local_attend",
    "local_mask",
    "location",
    "prob_sparse_attend",
    "rotate",
    "scaled_dot",
    "sinusoidal",
    "softmax",
    "sparsemax",
]
