#!/bin/sh
# Cargo calls it as `recorder rustc ARGS...`. It writes down the compilation that is to leave assembly.
# The builder does that one itself, without cargo's lock on the build folder. Cargo learns which files it reads.
recorded=false
for argument; do
    case $argument in --emit=asm=*) recorded=true ;; esac
done
$recorded || exec "$@"
# The environment may hold secrets: nobody else reads the file, and the builder removes it at once.
umask 077
{ printf '%s\0' "$PWD" "$#" "$@" && env -0; } >"$CUDA_BUILDER_CALL" || exit 1
for argument; do
    shift
    case $argument in
    --emit=dep-info*) argument=--emit=dep-info ;;
    --emit=*) continue ;;
    esac
    set -- "$@" "$argument"
done
exec "$@"
