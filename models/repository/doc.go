// Package repository finds the models in the operator's repositories and reads their files. It does
// not know which versions are loaded.
//
//	Roots ── Scan, Find ──▶ Identity          which models have a directory, and where
//	      ── Read ────────▶ Description       a model with its versions and labels
//	      ── Footprint ───▶ Footprint         the state of its files: has something changed?
//	      ── Open ────────▶ Folder            its files, read below the model's directory only
//	      ── Look, Renew                      list stores again
//	      ── Fetch ───────▶ Description, Footprint, copies.Copy     local files of a model in a store
//	Uploads ── Write ─────▶ copies.Copy ── Roots.ReadUpload ──▶ Description
//
// A Folder is closed by the caller that got it. An upload is a copy (package copies): the load that
// wrote it and each version made from it hold it.
//
// A repository may be registered while the server runs, with a model name for one of its
// directories. Only that directory is renamed, and no other repository is searched for that name.
//
// A Footprint also covers the archive of the execution environment, which the configuration names
// outside the model's directory. Read finds it; later footprints are told the paths. The files
// there that the processes of a version have imported are recorded by its Imports.
//
// Trust: the files of a model belong to its author. A link is followed as long as it stays below
// the root. Files that are not regular are refused, and whole reads are bounded. The names of
// uploaded files come from a client: none leads out of the upload's directory.
//
// A repository may be a location in an object store (package mirror). Scan, Find, Footprint, Read
// and Config then use the last complete listing and never wait for the store. A Description of a
// model there has no Directory. Fetch copies the model's files, without the versions that its
// policy excludes, and returns the description of the copied files, which is newer if objects have
// changed since the listing. Changed tells pollers that a listing differs.
//
// Any goroutine may call anything here. Description and Footprint are immutable. The list of Roots
// is replaced as a whole: readers load one pointer. The package has two locks, and nothing is taken
// under either: Roots.changing, while the list is replaced, and Imports.mu, while its paths are
// read or changed.
package repository
