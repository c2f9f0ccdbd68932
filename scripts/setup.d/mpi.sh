# Which MPI commgauge is built with, and whether compiler, header and launcher belong together. Ranks that are started by the launcher
# of another MPI would each be alone.
# shellcheck shell=bash

# The MPI of a compiler: open-mpi, mpich (of which Intel's and Cray's are made), or nothing.
family_of_compiler() { # PATH
    local text
    text=$("$1" --showme:version 2>&1 </dev/null) || true
    case "$text" in *"Open MPI"*) echo open-mpi; return ;; esac
    # Its last words are those of the C compiler, which may be missing.
    text=$("$1" -v 2>&1 </dev/null) || true
    case "$text" in *MPICH* | *"Intel(R) MPI"* | *MVAPICH*) echo mpich; return ;; esac
}

# The MPI of a launcher by what it says, as `commgauge run` tells it; no-home for an Open MPI 5 that says nothing without HOME.
family_of_launcher() { # PATH
    local text
    text=$("$1" --version 2>&1 </dev/null) || true
    case "$text" in
        *"(Open MPI)"* | *"(OpenRTE)"*) echo open-mpi ;;
        *"HYDRA build details"* | *"Intel(R) MPI"*) echo mpich ;;
        *"home directory"*) echo no-home ;;
    esac
}

name_of() { case "$1" in open-mpi) echo "Open MPI" ;; mpich) echo MPICH ;; *) echo "an unknown MPI" ;; esac; }

# The first launcher of that MPI, by the names and in the order of `commgauge run` (src/app/launch/find.rs).
launcher_of() { # FAMILY
    local name path names
    case "$1" in
        open-mpi) names="mpirun mpiexec mpirun.openmpi" ;;
        *) names="mpiexec mpirun mpiexec.mpich mpiexec.hydra" ;;
    esac
    for name in $names; do
        path=$(program "$name") || continue
        if [ "$(family_of_launcher "$path")" = "$1" ]; then
            echo "$name"
            return 0
        fi
    done
    return 1
}

# The launcher that people would take, and whose it is, where it is another MPI's than the compiler: `, as mpirun here is of MPICH`.
of_another() { # FAMILY
    local path family
    path=$(program mpirun) || path=$(program mpiexec) || return 0
    family=$(family_of_launcher "$path")
    [ "$family" = "$1" ] || echo ", as ${path##*/} here is of $(name_of "$family")"
}

finds_header() { # COMPILER
    "$1" -E -x c - <<<'#include <mpi.h>' >/dev/null 2>&1
}

links_library() { # COMPILER
    local folder linked=0
    folder=$(temporary -d) || exit
    "$1" -x c - -o "$folder/program" <<<'#include <mpi.h>
        int main(void) { return MPI_Finalize(); }' >/dev/null 2>&1 || linked=1
    rm -rf "$folder"
    return "$linked"
}

# What a compiler lacks to make a program for MPI; nothing where it is whole.
lacks() { # COMPILER
    if ! finds_header "$1"; then echo "header mpi.h"; elif ! links_library "$1"; then echo library; fi
}

# Sets compiler, its family and launcher, and asks for the packages of what is missing.
find_mpi() {
    family=open-mpi launcher=
    local wanted=${MPICC:-mpicc} dev=libopenmpi-dev fedora_dev=openmpi-devel bin=openmpi-bin fedora_bin=openmpi
    if ! compiler=$(program "$wanted"); then
        [ -z "${MPICC:-}" ] || stop 2 "MPICC is $MPICC, and there is no such program; name the compiler of an MPI that is there, or unset it"
        need libopenmpi-dev openmpi-devel "compiles and links against Open MPI"
        launcher=$(launcher_of open-mpi) || need openmpi-bin openmpi "starts the ranks"
        return
    fi
    family=$(family_of_compiler "$compiler")
    case "$family" in
        open-mpi) ;;
        mpich) dev=libmpich-dev fedora_dev=mpich-devel bin=mpich fedora_bin=mpich ;;
        *) stop 2 "$compiler is neither of Open MPI nor of MPICH or one of its kin; name the compiler of one in MPICC" ;;
    esac
    # Without a C compiler it can compile nothing, and is looked at again once there is one.
    local lacking=
    # Before the headers of C are there no header of MPI can be read either.
    if has cc && [ -e "$root/usr/include/stdio.h" ]; then lacking=$(lacks "$compiler"); fi
    if [ -n "$lacking" ]; then
        of_debian "$compiler" || stop 6 "$compiler does not find the $lacking, so that $(name_of "$family") is installed by half; install the rest of it, or name another compiler in MPICC"
        need "$dev" "$fedora_dev" "$(name_of "$family")'s $lacking, which $wanted does not find"
    fi
    launcher=$(launcher_of "$family") && return
    local other
    if other=$(program mpirun) && [ "$(family_of_launcher "$other")" = no-home ]; then
        stop 2 "$other finds no home directory, and starts nothing without one; set HOME"
    fi
    local folder=${compiler%/*}
    if [ -x "$folder/mpiexec" ] && [ "$(family_of_launcher "$folder/mpiexec")" = "$family" ]; then
        stop 2 "$compiler belongs to $(name_of "$family"), whose launcher is $folder/mpiexec and not on PATH; put it there: export PATH=$folder:\$PATH"
    fi
    need "$bin" "$fedora_bin" "starts ranks of $(name_of "$family"), to which $wanted belongs$(of_another "$family")"
}

# Whether the system's packages have this file, so that they have the rest of it too.
of_debian() { case "${1#"$root"}" in /usr/bin/* | /bin/*) return 0 ;; *) return 1 ;; esac; }

describe_mpi() {
    local text
    text="${MPICC:-mpicc} of $(name_of "$family"), starts ranks with $launcher"
    echo "$text$(of_another "$family")"
}
