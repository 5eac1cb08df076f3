//! The list of functions against cust_raw's source, and the symbols in the program.

use ironwarp_driver as _;
use std::{
    collections::BTreeSet,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The folder of cust_raw's source, as cargo resolves it.
fn cust_raw_source() -> Result<PathBuf, Box<dyn Error>> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--offline",
            "--filter-platform",
            &platform,
            "--manifest-path",
        ])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let marker = "\"manifest_path\":\"";
    let manifests = text.split(marker).skip(1).filter_map(|rest| rest.split('"').next());
    let manifest = manifests.map(PathBuf::from).find(|path| {
        path.parent()
            .and_then(|p| p.file_name())
            .is_some_and(|name| name.to_string_lossy().starts_with("cust_raw-"))
    });
    let manifest = manifest
        .ok_or_else(|| format!("cargo knows no cust_raw: {}", String::from_utf8_lossy(&output.stderr)))?;
    Ok(manifest.with_file_name("src"))
}

/// The words of one list in `names.rs`.
fn listed(list: &str) -> BTreeSet<String> {
    let source = include_str!("../../src/names.rs");
    let from = source.find(&format!("            {list}:\n")).map_or(source.len(), |at| at + list.len() + 14);
    let words = source[from..].split(';').next().unwrap_or_default();
    words.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn the_list_is_what_cust_raw_declares() -> Result<(), Box<dyn Error>> {
    if !Path::new(env!("CARGO")).exists() {
        testkit::skip("no cargo, and so no source of cust_raw");
        return Ok(());
    }
    let source = fs::read_to_string(cust_raw_source()?.join("cuda.rs"))?;
    let after = source.split("pub fn ").skip(1);
    let names = after.filter_map(|rest| rest.split('(').next()).filter(|name| name.starts_with("cu"));
    let mut declared: BTreeSet<String> = names.map(str::to_owned).collect();
    assert!(declared.remove("cuInit"), "cuInit is a function of its own");
    assert!(declared.len() > 300, "{} functions were found in cust_raw", declared.len());
    assert_eq!(listed("declared"), declared);
    Ok(())
}

#[test]
fn extra_functions_are_not_declared_by_cust_raw() {
    let (declared, extra) = (listed("declared"), listed("extra"));
    assert!(extra.contains("cuLaunchKernelEx"));
    assert_eq!(declared.intersection(&extra).count(), 0);
}

#[test]
fn every_extra_function_is_in_the_software_driver() -> Result<(), Box<dyn Error>> {
    testkit::own_process!("IRONWARP_DRIVER" = "soft");
    let has: BTreeSet<String> = ironwarp_driver::fault::functions().into_iter().map(str::to_owned).collect();
    let extra = listed("extra");
    assert_eq!(extra.difference(&has).collect::<Vec<_>>(), Vec::<&String>::new());
    Ok(())
}
