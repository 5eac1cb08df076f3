//! Asynchronous copies from global to shared memory.
