// Package clientshm keeps the regions of shared memory that clients have registered by name, for
// inputs and outputs of their requests.
//
//	Register ─▶ region: descriptor and mapping ◀── name ─ Find ─▶ Slice ─┬─ Copy   an input, by the descriptor
//	            counted: its name, and each Slice                        └─ Write  an output, through the mapping
//
// A region is a range of one file below /dev/shm, opened when it is registered. It stays that file
// whatever the client does with the file's name. Regions of the system and of CUDA devices share
// one namespace. A region on a device is an allocation that its client exports. This process never
// touches it: Config.Devices opens it at registration, holds it while it is in use, and copies from
// and to it.
//
// A region is in use while it has its name or a Slice of it is held. After that it is unmapped and
// its descriptor closed. Unregister returns at once.
//
// Memory: the server never resizes or removes a client's file. The client may write or truncate the
// file at any instant, so only two functions touch its bytes. Slice.Copy uses pread(2), which
// returns fewer bytes beyond the end of the file. Slice.Write uses shm.Guard, which turns a fault
// into an error. Both may be called by any goroutine.
//
// Stubs may map files that are private to the server's user (shm.Shared). They read inputs and
// write outputs there at their own risk, and unmap the file when the region is no longer in use.
//
// Trust: a key is one name in the folder, never a path. Links, folders, devices, pipes and the
// server's own files are rejected. The kernel decides which files of other users may be opened, as
// in Triton: a server that runs as root can open all of them. Numbers are compared without overflow
// before they are used.
//
// All methods may be called concurrently. The owner calls Close when no more requests are served;
// held slices stay valid. Registry.mu is a leaf; no system call is made while it is held.
package clientshm
