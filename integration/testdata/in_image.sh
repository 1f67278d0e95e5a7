#!/bin/sh
# Becomes a program in an image's root, as a container's runtime starts it: a mount and a process namespace of its own (by unshare, which runs
# this), a read-only root with /proc, a few devices and a small /tmp, no /dev/shm, and a user without rights.
#
#   in_image.sh ROOT UID GID MODELS PATHS PROGRAM ARGUMENTS...
#
# MODELS is mounted at /mnt/models. PATHS are directories of this machine, separated by colons, that the root lacks: they stand for what a base image has.
set -eu
root=$1 uid=$2 gid=$3 models=$4 paths=$5
shift 5
become=$(command -v setpriv) change=$(command -v chroot) environment=$(command -v env)
mount --make-rprivate /
mount --bind "$root" "$root"
mkdir -p "$root/proc" "$root/dev" "$root/tmp"
mount -t tmpfs -o mode=1777,size=64m tmpfs "$root/tmp"
attach() {
	mkdir -p "$root$2"
	mount --rbind "$1" "$root$2"
	mount -o remount,bind,ro "$root$2"
}
IFS=:
for path in $paths; do
	if [ -L "$path" ]; then
		mkdir -p "$root$(dirname "$path")"
		[ -L "$root$path" ] || ln -s "$(readlink "$path")" "$root$path"
	elif [ -d "$path" ]; then
		attach "$path" "$path"
	fi
done
unset IFS
attach "$models" /mnt/models
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755,size=64k tmpfs "$root/dev"
for device in null zero urandom random; do
	: >"$root/dev/$device"
	mount --bind "/dev/$device" "$root/dev/$device"
done
mount -o remount,bind,ro "$root"
# shellcheck disable=SC2086 # IMAGE_ENV is a list
exec "$environment" -i PATH=/usr/local/bin:/usr/bin:/bin:/opt/tritonserver/bin HOME=/tmp USER=nereid XDG_CACHE_HOME=/tmp/.cache ${IMAGE_ENV:-} \
	"$become" --no-new-privs "$change" --userspec="+$uid:+$gid" --groups="" "$root" "$@"
