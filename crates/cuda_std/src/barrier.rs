//! Named barriers.
