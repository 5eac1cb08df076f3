//! Tensors: layouts, views, files, methods and operators, the stream that these use.

mod current_stream;
mod tensor_files;
mod tensor_layout;
mod tensor_methods;
mod tensor_numbers;
mod tensor_rearrange;
mod tensor_statistics;
mod tensors;
