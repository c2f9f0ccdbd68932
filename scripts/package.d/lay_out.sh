# Lays out what was built as it is installed, and packs it in each form.
# shellcheck shell=bash

rank_programs=(commgauge-suite commgauge-step commgauge-sweep commgauge-pairs)

lay_out() { # FOLDER
    local program
    rm -rf "$1"
    mkdir -p "$1"/{bin,lib/commgauge/open-mpi,lib/commgauge/mpich,share/doc/commgauge}
    cp "$work/open-mpi/$target/release/commgauge" "$1/bin/"
    for program in "${rank_programs[@]}"; do
        cp scripts/package.d/program-of-path "$1/bin/$program"
        cp scripts/package.d/program-of-mpi "$1/lib/commgauge/open-mpi/$program"
        cp scripts/package.d/program-of-mpi "$1/lib/commgauge/mpich/$program"
    done
    cp "$work/open-mpi/$target/release/commgauge-ranks" "$1/lib/commgauge/open-mpi/"
    cp "$work/mpich/$target/release/commgauge-ranks" "$1/lib/commgauge/mpich/"
    cp "$work/stub-mpich/libcommgauge-mpich.so" "$1/lib/commgauge/mpich/"
    cp README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$1/share/doc/commgauge/"
    chmod -R u+rwX,go+rX,go-w "$1"
    chmod 755 "$1"/bin/* "$1"/lib/commgauge/*/*
    check_glibc "$1"
}

# No file may ask for a newer glibc than the one that is promised.
check_glibc() { # FOLDER
    local newest
    # What is no program, readelf refuses.
    newest=$({ find "$1/bin" "$1/lib" -type f -exec readelf --version-info {} + 2>/dev/null || true; } |
        grep -o 'GLIBC_2[.0-9]*' | sort -uV | tail -n 1)
    [ "$(printf '%s\nGLIBC_%s\n' "$newest" "$glibc" | sort -V | tail -n 1)" = "GLIBC_$glibc" ] ||
        stop 6 "the programs need $newest, and $glibc is promised"
    echo "package: the programs need $newest or newer"
}

make_tarball() {
    local name=commgauge-$version-linux-x86_64-glibc$glibc
    tar --create --xz --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$(git log -1 --format=%ct)" \
        --transform "s,^\.,$name," --file "$output/$name.tar.xz" --directory "$work/tree" .
}

make_wheel() {
    python3 scripts/package.d/wheel.py "$work/tree" "$version" "$glibc" "$output"
}

make_deb() {
    command -v dpkg-deb >/dev/null || stop 6 "there is no dpkg-deb; install dpkg"
    local root=$work/deb
    rm -rf "$root"
    mkdir -p "$root/DEBIAN"
    cp -a "$work/tree" "$root/usr"
    cat >"$root/DEBIAN/control" <<END
Package: commgauge
Version: $version
Architecture: amd64
Maintainer: the maintainers of commgauge <maintainers@example.invalid>
Depends: libc6 (>= $glibc), openmpi-bin | mpich
Section: science
Priority: optional
Installed-Size: $(du -sk "$root/usr" | cut -f 1)
Description: measures the communication of training and serving large models
 The collectives and transfers of each parallel style, sized from a model's own
 configuration, in the process groups of a real layout, over MPI or NCCL.
END
    dpkg-deb --root-owner-group -Zxz --build "$root" "$output/commgauge_${version}_amd64.deb" >/dev/null
}

make_container() {
    cp scripts/kubernetes/Containerfile "$output/commgauge-$version.Containerfile"
}
