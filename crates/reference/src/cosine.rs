//! Oracle of the cosine similarity kernels.
