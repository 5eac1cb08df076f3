//! Matrix fragments: ldmatrix and stmatrix.
