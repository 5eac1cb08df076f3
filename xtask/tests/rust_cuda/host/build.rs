use cuda_builder::CudaBuilder;

fn main() {
    CudaBuilder::new("../kernels")
        .copy_to("../resources/kernels.ptx")
        .build()
        .unwrap();
}
