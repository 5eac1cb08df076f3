//! The chapters of `docs/book`, so that their code is compiled and run with the tests of this package.

#[doc = include_str!("../../docs/book/src/getting-started.md")]
struct GettingStarted;
#[doc = include_str!("../../docs/book/src/first-kernel.md")]
struct FirstKernel;
#[doc = include_str!("../../docs/book/src/device-library.md")]
struct DeviceLibrary;
#[doc = include_str!("../../docs/book/src/checker.md")]
struct Checker;
#[doc = include_str!("../../docs/book/src/memory-and-streams.md")]
struct MemoryAndStreams;
#[doc = include_str!("../../docs/book/src/tensors.md")]
struct Tensors;
#[doc = include_str!("../../docs/book/src/ops.md")]
struct Ops;
#[doc = include_str!("../../docs/book/src/graphs.md")]
struct Graphs;
#[doc = include_str!("../../docs/book/src/attention.md")]
struct Attention;
#[doc = include_str!("../../docs/book/src/training.md")]
struct Training;
#[doc = include_str!("../../docs/book/src/several-gpus.md")]
struct SeveralGpus;
#[doc = include_str!("../../docs/book/src/rows.md")]
struct Rows;
#[doc = include_str!("../../docs/book/src/matrix-products.md")]
struct MatrixProducts;
#[doc = include_str!("../../docs/book/src/gemm-walkthrough.md")]
struct GemmWalkthrough;
#[doc = include_str!("../../docs/book/src/search.md")]
struct Search;
#[doc = include_str!("../../docs/book/src/hopper.md")]
struct Hopper;
#[doc = include_str!("../../docs/book/src/cuda-triton.md")]
struct CudaTriton;
#[doc = include_str!("../../docs/book/src/pytorch-candle.md")]
struct PytorchCandle;
#[doc = include_str!("../../docs/book/src/rust-cuda.md")]
struct RustCuda;
#[doc = include_str!("../../docs/book/src/launching.md")]
struct Launching;
#[doc = include_str!("../../docs/book/src/measuring.md")]
struct Measuring;
#[doc = include_str!("../../docs/book/src/errors.md")]
struct Errors;
#[doc = include_str!("../../docs/book/src/commands.md")]
struct Commands;
#[doc = include_str!("../../docs/book/src/environment.md")]
struct Environment;
#[doc = include_str!("../../docs/book/src/glossary.md")]
struct Glossary;
