//! The reader against PTX as LLVM writes it.

use super::*;
use crate::arch::Arch;

/// Two kernels as rustc 1.96 leaves them: `bad` can panic, `fill` carries launch bounds.
const MODULE: &str = include_str!("testdata/module.ptx");

fn arch() -> Arch {
    Arch::new(80)
}

#[test]
fn functions_are_split_with_their_bodies() {
    let module = Module::parse(MODULE).unwrap();
    assert_eq!(module.version, (7, 0));
    let entries: Vec<&str> = module.entries().map(|entry| entry.name).collect();
    assert_eq!(entries, ["bad", "fill"]);
    let fill = module.entries().nth(1).unwrap();
    assert!(module.text[fill.head.clone()].starts_with(".visible .entry fill("));
    assert!(module.body(fill).starts_with('{') && module.body(fill).ends_with('}'));
    assert!(module.body(fill).contains("st.global.b32"));
    assert_eq!(
        module.functions.iter().filter(|function| function.body.is_none()).count(),
        1,
        "one declaration"
    );
}

#[test]
fn bounds_become_directives_and_the_header_leads() {
    let finished = finish(MODULE, "tiny", arch()).unwrap();
    assert!(finished.starts_with("// ironwarp family=tiny arch=sm_80\n"));
    assert!(finished.contains("\n.version 7.0\n"));
    let at = finished.find(".visible .entry fill(").unwrap();
    let head = &finished[at..at + finished[at..].find('{').unwrap()];
    assert!(head.ends_with(")\n.maxntid 256, 1, 1\n.minnctapersm 2\n"), "{head}");
    let bad = &finished[finished.find(".visible .entry bad(").unwrap()..at];
    assert!(!bad.contains(".maxntid"));
}

#[test]
fn exact_bounds_and_setmaxnreg_become_reqntid() {
    let exact = MODULE.replace("min_blocks=2", "min_blocks=1 exact=1");
    assert!(
        finish(&exact, "tiny", Arch::new(100)).unwrap().contains(".reqntid 256, 1, 1\n.minnctapersm 1\n")
    );
    let registers = MODULE
        .replace("st.global.b32 	[%rd1]", "setmaxnreg.inc.sync.aligned.u32 240;\n	st.global.b32 	[%rd1]");
    let finished = finish(&registers, "tiny", "sm_100a".parse().unwrap()).unwrap();
    assert!(finished.contains(".reqntid 256, 1, 1"));
    assert!(finished.contains(".version 8.0"), "setmaxnreg needs PTX 8.0");
}

#[test]
fn instructions_need_their_architecture() {
    let copies = MODULE.replace(
        "st.global.b32 	[%rd1]",
        "cp.async.ca.shared.global [%r1], [%rd1], 4;\n	st.global.b32 	[%rd1]",
    );
    assert!(finish(&copies, "tiny", Arch::new(80)).is_ok());
    let error = finish(&copies, "tiny", Arch::new(75)).unwrap_err();
    assert!(matches!(&error, PtxError::NeedsArch { needed, .. } if *needed == Arch::new(80)), "{error}");
    let product =
        MODULE.replace("st.global.b32 	[%rd1]", "wgmma.fence.sync.aligned;\n	st.global.b32 	[%rd1]");
    let error = finish(&product, "tiny", Arch::new(90)).unwrap_err().to_string();
    assert!(
        error.contains("needs sm_90a; it is built for sm_90.") && error.contains("Compute90a"),
        "{error}"
    );
    assert!(finish(&product, "tiny", "sm_90a".parse().unwrap()).is_ok());
}

#[test]
fn tensor_maps_are_aligned_where_the_annotation_says() {
    let map = ".param .align 8 .b8 fill_param_3[128]";
    let with_map = MODULE
        .replace(
            "// @ironwarp kernel=fill",
            "// @ironwarp kernel=fill tensor_map=3\n// @ironwarp kernel=fill",
        )
        .replacen(".visible .entry fill(", &format!(".visible .entry fill(\n\t{map},"), 1);
    let finished = finish(&with_map, "tiny", arch()).unwrap();
    assert!(finished.contains(".param .align 64 .b8 fill_param_3[128]"), "{finished}");
    assert!(finished.contains(".maxntid 256, 1, 1"), "the bounds stand beside it");
    for (found, instead) in [(map, ".param .align 8 .b8 fill_param_3[64]"), ("tensor_map=3", "tensor_map=4")]
    {
        let error = finish(&with_map.replace(found, instead), "tiny", arch()).unwrap_err();
        assert!(matches!(&error, PtxError::NoTensorMap { kernel, .. } if kernel == "fill"), "{error}");
    }
}

#[test]
fn the_version_rises_to_what_the_assembly_needs_and_never_falls() {
    let with = |instruction: &str| MODULE.replace("mov.u32 	%r2, %tid.x;", instruction);
    for (instruction, version) in [
        ("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r1], {%r2, %r3, %r4, %r5};", "7.8"),
        ("@%p1 mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2;", "7.8"),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];",
            "8.0",
        ),
        ("{ .reg .pred p; wgmma.fence.sync.aligned; }", "8.0"),
        ("cvta.param.u64 %rd1, %rd2;", "7.7"),
        ("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1];", "8.0"),
        ("// wgmma.fence is only mentioned", "7.0"),
        ("fma.rn.f32 %f1, %f2, %f3, %f4;", "7.0"),
    ] {
        let finished = finish(&with(instruction), "tiny", "sm_100a".parse().unwrap()).unwrap();
        assert!(finished.contains(&format!(".version {version}\n")), "{instruction}");
    }
    // LLVM picks 6.3 for sm_75, before Rust 1.97.
    for (instruction, version) in [
        ("tanh.approx.f32 %f1, %f2;", "7.0"),
        ("ex2.approx.f16x2 %r1, %r2;", "7.0"),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r2];", "6.5"),
        (
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2}, {%r3}, {%f1, %f2, %f3, %f4};",
            "6.5",
        ),
        ("ex2.approx.ftz.f32 %f1, %f2;", "6.3"),
    ] {
        let early = with(instruction).replace(".version 7.0", ".version 6.3");
        let finished = finish(&early, "tiny", Arch::new(75)).unwrap();
        assert!(finished.contains(&format!(".version {version}\n")), "{instruction}");
    }
    let later = MODULE.replace(".version 7.0", ".version 8.6");
    assert!(finish(&later, "tiny", Arch::new(100)).unwrap().contains(".version 8.6\n"));
}

#[test]
fn a_panic_is_reported_with_the_way_to_it() {
    let module = Module::parse(MODULE).unwrap();
    let lints = lint(&module);
    assert_eq!(lints[0].kernel, "bad");
    assert_eq!(lints[0].panic_path, ["bad", "core::panicking::panic_bounds_check"]);
    assert_eq!(lints[1].panic_path, Vec::<String>::new());
}

#[test]
fn local_memory_and_barriers_are_counted() {
    let text = MODULE.replace(
        "mov.u32 	%r2, %tid.x;",
        ".local .align 8 .b8 	__local_depot0[48];\n	bar.sync 	0;\n	barrier.sync.aligned 1, 128;\n	mbarrier.init.shared.b64 [%r1], 1;",
    );
    let lints = lint(&Module::parse(&text).unwrap());
    assert_eq!((lints[0].local_bytes, lints[0].barriers), (48, 2));
}

#[test]
fn shared_memory_is_that_of_the_variables_that_a_kernel_names() {
    let declared = ".shared .align 4 .b8 a[6];\n.shared .align 16 .b8 a_1[32];\n.shared .align 4 .b8 other[512];\n.extern .shared .align 1024 .b8 dynamic[];\n";
    let text = MODULE.replacen(".target", &format!("{declared}.target"), 1).replacen(
        "mov.u32 	%r2, %tid.x;",
        "mov.u64 %rd1, a;\n	ld.shared.b32 %r1, [a_1+4];\n	mov.u32 %r2, %other;",
        1,
    );
    let lints = lint(&Module::parse(&text).unwrap());
    assert_eq!((lints[0].shared_bytes, lints[0].dynamic_shared), (16 + 32, false));
    assert_eq!((lints[1].shared_bytes, lints[1].dynamic_shared), (0, false));
    let text = text.replace("[a_1+4]", "[dynamic]");
    let lints = lint(&Module::parse(&text).unwrap());
    assert_eq!((lints[0].shared_bytes, lints[0].dynamic_shared), (6, true));
}

#[test]
fn the_object_in_shared_memory_is_at_zero() {
    let declared = ".extern .shared .align 1 .b8 gpu_launch_sized_workgroup_mem[];\n";
    let uses = "mov.b64 	%rd1, gpu_launch_sized_workgroup_mem;\n	{ .reg .b64 object; mov.b64 object, gpu_launch_sized_workgroup_mem; sub.s64 %rd2, %rd3, object; }\n";
    let with = |uses: &str| {
        let text = MODULE.replacen(".target", &format!("{declared}.target"), 1);
        finish(&text.replacen("mov.u32 	%r2, %tid.x;", uses, 1), "tiny", arch()).unwrap()
    };
    let finished = with(uses);
    assert!(finished.contains("mov.b64 	%rd1, 0;") && finished.contains("mov.b64 object, 0;"), "{finished}");
    assert!(!finished.contains("gpu_launch_sized"), "{finished}");
    // A kernel's own use of the object, and one that has to name it.
    let own = "mov.b64 	%rd1, gpu_launch_sized_workgroup_mem;\n";
    assert!(with(own).contains(own) && with(own).contains(declared));
    let named = format!("{uses}	ld.shared.b32 %r2, [gpu_launch_sized_workgroup_mem];\n");
    assert!(with(&named).contains(&named) && with(&named).contains(declared));
}

#[test]
fn dynamic_shared_memory_is_declared_only_where_it_is_used() {
    let declared = ".extern .shared .align 1024 .b8 dynamic[];\n";
    let text = MODULE.replacen(".target", &format!("{declared}.target"), 1);
    assert!(!finish(&text, "tiny", arch()).unwrap().contains("dynamic"));
    let used = text.replacen("mov.u32 	%r2, %tid.x;", "mov.u64 %rd1, dynamic;", 1);
    assert!(finish(&used, "tiny", arch()).unwrap().contains(declared));
}

#[test]
fn instructions_fall_into_classes() {
    let module = Module::parse(MODULE).unwrap();
    let counts = instructions(module.body(module.entries().nth(1).unwrap()));
    assert_eq!(counts["st.global"], 1);
    assert_eq!(counts["ld.param"], 2);
    assert_eq!(counts["bra"], 2, "predicated branches count");
    let braces = instructions(
        "{\n\t{ .reg .pred p; fma.rn.f32 %f1, %f2, %f3, %f4; }\n\tmma.sync.aligned.m16n8k16\n\t\t{%r1, %r2},\n\t\t{%r3};\n$L1:\n}",
    );
    assert_eq!(braces, counted(&[("fma", 1), ("mma", 1)]));
}

#[test]
fn missing_functions_are_named_with_their_caller() {
    let text = MODULE.replace(
        "call.uni _RNvNtCsanIojcP8aaR_4core9panicking9panic_fmt, ()",
        "call.uni (retval0), \n	memcmp, \n	(param0)",
    );
    let error = finish(&text, "tiny", arch()).unwrap_err();
    assert!(matches!(&error, PtxError::Unresolved { function, .. } if function == "memcmp"), "{error}");
    assert!(error.to_string().contains("panic_bounds_check"));
    let system = MODULE.replace(
        "call.uni _RNvNtCsanIojcP8aaR_4core9panicking9panic_fmt, ()",
        "call.uni (retval0), vprintf, (param0, param1)",
    );
    assert!(finish(&system, "tiny", arch()).is_ok());
}

#[test]
fn the_address_of_a_shared_static_is_refused() {
    let with = |globals: &str| MODULE.replacen(".target", &format!("{globals}\n.target"), 1);
    let shared = ".shared .align 16 .b8 __shared_hello_TILE_0[256];\n";
    let address = ".global .align 1 .b8 _RNvCseUDqCzFdiNw_5hello4TILE;\n";
    let error = finish(&with(&format!("{shared}{address}")), "tiny", arch()).unwrap_err();
    assert!(matches!(&error, PtxError::SharedByAddress { name, .. } if name == "TILE"), "{error}");
    assert!(error.to_string().contains("`hello::TILE`"), "{error}");
    // The variable alone, a byte of another name, of another crate, and one that has a size.
    for fine in [
        shared.to_owned(),
        format!("{shared}{}", address.replace("4TILE", "4FLAG")),
        format!("{shared}{}", address.replace("5hello", "5jello")),
        format!("{shared}{}", address.replace("TILE;", "TILE[4];")),
        address.to_owned(),
    ] {
        assert!(finish(&with(&fine), "tiny", arch()).is_ok(), "{fine}");
    }
}

#[test]
fn broken_input_is_an_error() {
    let not_ptx = Module::parse("int main() {}").unwrap_err();
    assert!(matches!(not_ptx, PtxError::NotPtx { directive: ".version" }));
    let open = ".version 7.0\n.target sm_80\n.visible .entry f()\n{\n\tret;\n";
    assert!(matches!(Module::parse(open).unwrap_err(), PtxError::Unbalanced { .. }));
    let head_only = ".version 7.0\n.target sm_80\n.visible .entry f(";
    assert!(matches!(Module::parse(head_only).unwrap_err(), PtxError::Unbalanced { .. }));
    for comment in [
        "kernel=fill max_threads=many",
        "max_threads=1",
        "kernel=fill blocks=1",
        "kernel=fill min_blocks=2",
        "fill",
    ] {
        let text = MODULE.replace("kernel=fill max_threads=256 min_blocks=2", comment);
        assert!(matches!(Module::parse(&text).unwrap_err(), PtxError::BadAnnotation { .. }), "{comment}");
    }
    let stranger = MODULE.replace("kernel=fill", "kernel=full");
    let error = finish(&stranger, "tiny", arch()).unwrap_err();
    assert!(error.to_string().contains("bad, fill"), "{error}");
}

#[test]
fn an_entry_prints_with_what_it_calls() {
    let module = Module::parse(MODULE).unwrap();
    let bad = module.entry_text(module.entries().next().unwrap());
    assert!(bad.contains(".visible .entry bad(") && bad.contains("18panic_bounds_check("));
    assert!(!bad.contains("fill"));
}

fn counted(counts: &[(&str, usize)]) -> InstructionCounts {
    counts.iter().map(|(class, count)| ((*class).to_owned(), *count)).collect()
}

#[test]
fn every_instruction_is_counted_by_its_kind() {
    let body = "{\n\tadd.s32 %r1, %r2, 1;\n\tadd.f32 %f1, %f2, %f3;\n\tsetp.ge.s32 %p1, %r1, 4;\n\t@%p1 shl.b32 %r3, %r1, 2;\n\tld.global.f32 %f1, [%rd1];\n\tret;\n}";
    let wanted = counted(&[("add", 2), ("ld.global", 1), ("ret", 1), ("setp", 1), ("shl", 1)]);
    assert_eq!(instructions(body), wanted);
}
