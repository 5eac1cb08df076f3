//! Tensors in safetensors files: there and back, and files that are damaged in every way.

use half::bf16;
use ironwarp::tensor::safetensors::{TensorFile, save};
use ironwarp::{DType, Device, Error, Stream, Tensor, TensorError};
use std::error::Error as StdError;
use std::path::{Path, PathBuf};

type Outcome = Result<(), Box<dyn StdError>>;

/// A path of its own in the system's temporary folder, removed when it goes.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Scratch(std::env::temp_dir().join(format!("ironwarp-{}-{name}.safetensors", std::process::id())))
    }
}

impl AsRef<Path> for Scratch {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn stream() -> Result<Stream, Error> {
    Device::open(0)?.stream()
}

/// A file of these bytes, a header as long as said in front.
fn written(name: &str, header: &str, data: &[u8]) -> Result<Scratch, std::io::Error> {
    let path = Scratch::new(name);
    std::fs::write(&path, [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat())?;
    Ok(path)
}

/// A file that was opened is the one that tensors come from, whatever has its name by then.
#[test]
fn a_replaced_file_is_read_as_it_was() -> Outcome {
    let stream = stream()?;
    let path = Scratch::new("replaced");
    let of = |value: f32| Tensor::from_slice(&stream, &[2], &[value; 2]);
    save(&stream, &path, &[("a", &of(1.0)?), ("b", &of(2.0)?)])?;
    let before = TensorFile::open(&path)?;
    save(&stream, &path, &[("b", &of(3.0)?), ("a", &of(4.0)?), ("c", &of(5.0)?)])?;
    assert_eq!(before.load(&stream, "b")?.to_vec::<f32>(&stream)?, [2.0; 2]);
    assert_eq!(TensorFile::open(&path)?.load(&stream, "b")?.to_vec::<f32>(&stream)?, [3.0; 2]);
    Ok(())
}

#[test]
fn every_element_type_there_and_back() -> Outcome {
    let stream = stream()?;
    let path = Scratch::new("types");
    let bytes: Vec<u8> = (0..48).map(|i| i % 2).collect();
    let zeros: Vec<Tensor> =
        DType::ALL.iter().map(|&dtype| Tensor::zeros(&stream, &[2, 3], dtype)).collect::<Result<_, _>>()?;
    let bools = Tensor::from_slice(&stream, &[48], &bytes.iter().map(|&b| b == 1).collect::<Vec<bool>>())?;
    let numbers: Vec<bf16> = (0..12).map(|i| bf16::from_f32(i as f32 - 5.5)).collect();
    let numbers = Tensor::from_slice(&stream, &[3, 4], &numbers)?;
    let turned = numbers.transpose(0, 1)?;
    let names: Vec<String> = DType::ALL.iter().map(DType::to_string).collect();
    let mut tensors: Vec<(&str, &Tensor)> = names.iter().map(String::as_str).zip(&zeros).collect();
    tensors.extend([("bools", &bools), ("numbers", &numbers), ("turned", &turned)]);
    save(&stream, &path, &tensors)?;

    let file = TensorFile::open(&path)?;
    assert_eq!(file.names().len(), tensors.len());
    for (name, tensor) in &tensors {
        let loaded = file.load(&stream, name)?;
        assert_eq!((loaded.dtype(), loaded.shape()), (tensor.dtype(), tensor.shape()), "{name}");
        assert_eq!(file.describe(name)?, (tensor.dtype(), tensor.shape().clone()));
    }
    assert_eq!(file.load(&stream, "bools")?.to_vec::<bool>(&stream)?, bools.to_vec::<bool>(&stream)?);
    assert_eq!(file.load(&stream, "turned")?.to_vec::<bf16>(&stream)?, turned.to_vec::<bf16>(&stream)?);
    Ok(())
}

#[test]
fn a_file_keeps_its_permissions_and_links() -> Outcome {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let stream = stream()?;
    let x = Tensor::zeros(&stream, &[3], DType::U8)?;
    let mode = |path: &Path| std::fs::metadata(path).map(|file| file.permissions().mode() & 0o777);
    let (path, link, plain) = (Scratch::new("kept"), Scratch::new("link"), Scratch::new("plain"));
    // A new file is as others are that the process makes.
    std::fs::write(&plain, "")?;
    save(&stream, &path, &[("x", &x)])?;
    assert_eq!(mode(path.as_ref())?, mode(plain.as_ref())?);
    symlink(&path, &link)?;
    for wanted in [0o640, 0o604] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(wanted))?;
        save(&stream, &link, &[("y", &x)])?;
        assert_eq!(mode(path.as_ref())?, wanted);
    }
    assert!(link.as_ref().is_symlink());
    assert_eq!(TensorFile::open(&path)?.names(), ["y"]);
    // Nothing is left beside a file that could not be written.
    let folder = std::env::temp_dir().join(format!("ironwarp-{}-folder", std::process::id()));
    std::fs::create_dir_all(folder.join("here"))?;
    let refused = save(&stream, folder.join("here"), &[("x", &x)]);
    assert!(matches!(refused, Err(Error::FileWrite { .. })), "{refused:?}");
    assert_eq!(std::fs::read_dir(&folder)?.count(), 1);
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

#[test]
fn what_is_no_file_of_tensors_is_refused() -> Outcome {
    let header = r#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    for (name, header, data) in [
        ("short data", header, &[0u8; 7][..]),
        ("long data", header, &[0; 9]),
        ("no json", "{\"x\":", &[0; 8]),
        ("size and shape differ", r#"{"x":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}"#, &[0; 8]),
        ("a gap", r#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}"#, &[0; 16]),
        ("backwards", r#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}"#, &[0; 8]),
        (
            "overflow",
            r#"{"x":{"dtype":"F32","shape":[4611686018427387904,8],"data_offsets":[0,8]}}"#,
            &[0; 8],
        ),
        (
            "huge end",
            r#"{"x":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,18446744073709551615]}}"#,
            &[0; 8],
        ),
        ("unknown type", r#"{"x":{"dtype":"Q7","shape":[2],"data_offsets":[0,8]}}"#, &[0; 8]),
        ("no text", "\u{0}\u{1}", &[]),
    ] {
        let path = written("refused", header, data)?;
        let error = TensorFile::open(&path).expect_err(name);
        assert!(matches!(error.tensor_error(), Some(TensorError::File { .. })), "{name}: {error:?}");
        assert!(error.to_string().contains("\nhint: "), "{name}: {error}");
    }
    let path = Scratch::new("cut");
    for bytes in [&[][..], &[1, 2, 3], &[9, 0, 0, 0, 0, 0, 0, 0], &[0xff; 8], &[0xff; 40]] {
        std::fs::write(&path, bytes)?;
        assert!(matches!(
            TensorFile::open(&path).unwrap_err().tensor_error(),
            Some(TensorError::File { .. })
        ));
    }
    assert!(matches!(TensorFile::open("/nowhere/at/all"), Err(Error::File { .. })));
    Ok(())
}

#[test]
fn every_cut_of_a_file_is_noticed() -> Outcome {
    let stream = stream()?;
    let path = Scratch::new("whole");
    save(&stream, &path, &[("x", &Tensor::from_slice(&stream, &[3], &[1.0f32, 2.0, 3.0])?)])?;
    let whole = std::fs::read(&path)?;
    for len in 0..whole.len() {
        std::fs::write(&path, &whole[..len])?;
        assert!(TensorFile::open(&path).is_err(), "{len} of {} bytes", whole.len());
    }
    std::fs::write(&path, &whole)?;
    let file = TensorFile::open(&path)?;
    assert_eq!(file.load(&stream, "x")?.to_vec::<f32>(&stream)?, [1.0, 2.0, 3.0]);
    // Cut after it was opened.
    std::fs::write(&path, &whole[..whole.len() - 1])?;
    assert!(matches!(file.load(&stream, "x"), Err(Error::File { .. })));
    Ok(())
}

#[test]
fn tensors_that_cannot_be_had() -> Outcome {
    let stream = stream()?;
    let header = r#"{"flags":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]},"wide":{"dtype":"U64","shape":[1],"data_offsets":[2,10]},"deep":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[10,11]}}"#;
    let path = written("odd", header, &[1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
    let file = TensorFile::open(&path)?;
    for (name, part) in [("flags", "neither 0 nor 1"), ("wide", "U64"), ("deep", "9 axes")] {
        let error = file.load(&stream, name).unwrap_err();
        assert!(matches!(error.tensor_error(), Some(TensorError::File { .. })), "{error:?}");
        assert!(error.to_string().contains(part), "{error}");
    }
    let error = file.load(&stream, "none").unwrap_err();
    assert!(
        matches!(error.tensor_error(), Some(TensorError::NoSuchTensor { names, .. }) if names.len() == 3),
        "{error:?}"
    );
    let x = Tensor::zeros(&stream, &[1], DType::U8)?;
    for names in [["x", "x"], ["x", "__metadata__"]] {
        let error = save(&stream, &path, &names.map(|name| (name, &x))).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { argument: "the names", .. }), "{error:?}");
        assert!(error.to_string().contains(names[1]), "{error}");
    }
    assert_eq!(TensorFile::open(&path)?.names().len(), 3, "nothing was written");
    let nowhere = save(&stream, "/nowhere/at/all.safetensors", &[("x", &x)]);
    assert!(matches!(nowhere, Err(Error::FileWrite { .. })), "{nowhere:?}");
    Ok(())
}
