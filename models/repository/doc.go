// Package repository knows which models lie in the directories that the operator names,
// and what their files say and look like. It knows nothing of loading: not which
// versions serve, nor why one does not.
//
//	Roots ── Scan, Find ──▶ Identity          which models have a directory, and where
//	      ── Read ────────▶ Description       what a model is, with its versions and labels
//	      ── Footprint ───▶ Footprint         what its files look like: has something changed?
//	      ── Open ────────▶ Folder            its files, read below the model's directory only
//	      ── Look, Renew                    have stores listed again
//	      ── Fetch ───────▶ Description, Footprint, copies.Copy     the files of a model in a store, here
//	Uploads ── Write ─────▶ copies.Copy ── Roots.ReadUpload ──▶ Description
//
// A Folder is closed by the caller that got it. An upload is a copy (package copies): the load
// that wrote it and each version that came of it hold it.
//
// A repository may be registered while the server runs, with the name under which one of its
// directories is known: that directory alone has another name, and no other repository is
// asked for a model of that name.
//
// A Footprint has what the configuration names outside of the model's directory, too: the
// archive of an execution environment. Read knows it; a later look is told the paths. Files there that the
// processes of a version have imported are known by its Imports, while the process runs.
//
// Trust: what is in a model's directory is the user's. A link inside it is followed as
// long as it stays below the root; files that are no regular files are refused, and what
// is read whole has a bound. The names of uploaded files are a client's: none leads out
// of the upload's directory.
//
// A repository may be a location in an object store (package mirror). Scan, Find, Footprint, Read and Config answer from its
// last complete listing and never wait for it. A Description of a model there has no Directory: Fetch makes a copy of the
// model's files, without the versions that its policy leaves out, and returns the description of just what it has copied,
// which is another than before if objects have changed meanwhile. Changed tells pollers that a listing differs.
//
// Any goroutine may call anything here. Description and Footprint do not change. The list of
// Roots is replaced as a whole: readers load one pointer. There are two locks, and nothing is taken
// under either: Roots.changing, while the list is replaced, and Imports.mu, while its paths are
// read or changed.
package repository
