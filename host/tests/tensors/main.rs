//! Tensors: layouts, views, files.

mod tensor_files;
mod tensor_layout;
mod tensors;
