// Package clientshm keeps the regions of shared memory that clients have registered under
// names, so that requests can say where inputs lie and where outputs shall go.
//
//	Register ─▶ region: descriptor and mapping ◀── name ─ Find ─▶ Slice ─┬─ Copy   an input, by the descriptor
//	            counted: its name, and each Slice                        └─ Write  an output, through the mapping
//
// A region is a range of one file below /dev/shm, opened when it is registered. Whatever
// the client does with the name of the file afterwards, the region stays that file.
// Regions of the system and of CUDA devices share the names. One on a device is an allocation
// that its client lets others open. This process never touches it: Config.Devices opens it when
// it is registered, holds it while it is in use, and copies from and to it.
//
// States: a region is named until Unregister, and in use as long as it is named or a Slice
// of it is held. Then it is unmapped and its descriptor closed. Unregister returns at once.
//
// Memory: the server never changes the size of a client's file, and never removes it. The
// bytes belong to the client, who may write or truncate them at any instant. So they
// are touched in two places alone: Slice.Copy reads them by pread(2), which gives less
// than was asked for behind the end of the file, and Slice.Write writes them under
// shm.Guard, which makes an error of the fault. Both are safe to be called by any
// goroutine; what becomes of bytes that several write at once is their clients' affair.
//
// A file that is ours alone may be mapped by stubs, too (shm.Shared): they read inputs and
// write outputs there at their own risk, and unmap it when nothing uses the region any more.
//
// Trust: a key is one name in the folder, never a path; links, folders, devices and pipes are
// refused, and so are files of the server itself. Which files of other users may be opened
// is the kernel's decision, as in Triton: a server that runs as root may open all of
// them. Numbers are compared without overflow before they are used.
//
// Callers: the goroutines that serve requests, all methods at once. The owner calls Close
// when no request is served any more; slices that are still held stay valid.
//
// Locks: Registry.mu is a leaf. No system call is made while it is held.
package clientshm
