// Package archive unpacks packed environments: tar archives, bare or compressed by gzip, zstd,
// bzip2 or xz, which it recognizes by their content.
//
// Unpack reads an archive once, from its first byte to its last, and creates its entries below a
// directory that is open as an os.Root. The directory is empty at first and nothing else writes to
// it meanwhile. After an error the directory holds some of the entries, and its owner removes it.
//
//	source ─▶ reading ─▶ decompressing ─▶ entries ─▶ writing (several)
//	       the caller's    one goroutine   Unpack's own   files, in batches
//	       Read, in a                      goroutine:
//	       goroutine                       all names
//
// Unpack's own goroutine reads the headers and creates every name, in the order of the archive:
// directories, links, and empty files. The writers only fill open files, set their modes and times
// and close them. So the order between a file, a hard link to it and a second entry of the same
// name is that of the archive, and needs no lock. Directories get their times last, when nothing is
// created in them any more.
//
// # Refused entries
//
// An archive may come from an untrusted source. It cannot create, change or read anything outside
// the directory: each component of a name is opened by itself and never through a symbolic link,
// and the target of each link is checked. A refused archive fails with an Error that names the
// entry and the reason. If Triton has a text for the reason, the reason contains it word for word.
//
//	entry                                             result
//	name with "..", absolute name                     refused with Triton's text
//	name below a symbolic link of the archive         refused with Triton's text
//	no name, a control character in the name          refused
//	component above 255 bytes, name above 3,072       refused: Linux opens 4,096 with the directory's own path
//	symbolic link to an absolute path or outside      refused, whether directly or through other links
//	hard link to a file missing in the archive        refused; as above for "..", absolute, through links
//	device, fifo, unknown kind                        refused
//	set-uid, set-gid, sticky bit, write for others    bit dropped: modes are masked by 0755
//	no write or read permission for the owner         added, so that the files can be removed
//	owner, group, extended attributes                 not restored
//	second entry of the same name                     replaces the first, unless one of them is a directory
//	names that differ only in case                    created, since real environments have such (share/terminfo/E and e);
//	                                                  refused if the file system considers them equal
//	sparse file                                       created, and counts with its whole length
//	bytes after the end of the archive                zeros are padding, other bytes are refused
//	compressed data in several members or frames      read as one
//
// Limits bounds files, bytes, depth and ratio. Memory is bounded for any archive, and charged
// before it is allocated: about 15 MiB for blocks and batches, and one and a half times the window
// of the compression, which is at most 128 MiB for zstd and 64 MiB for xz. Names of directories are
// kept until the end, up to 64 MiB.
//
// # Durability
//
// Unpack leaves writing to the kernel. Sync makes everything durable at once, which costs far less
// than one fsync for each of twenty thousand files. A caller that renames the directory calls it
// first.
package archive
