// Package mirror keeps local copies of the served models of a repository in an object store.
//
//	objectstore.Bucket ── Open, Renew, Look ──▶ listing: Model by name    the store's content, and when
//	Model          ── Copy ──────────────▶ copies.Copy                its files, complete and verified
//	URL            ── Archives.Fetch ────▶ Archive                    one object: a packed execution environment
//
// Models and Model use the last complete listing. They make no request to the store and do not
// wait. Incomplete listings are discarded. A listing contains the text of each model's
// configuration, so that a model can be described without the store. Renew takes a new listing in a
// goroutine of the mirror, one at a time. Look lists one model and waits. If the store fails, the
// listing stays as it is: the log says so once, and once more when the store responds again.
//
// Copy makes a directory with the objects of one Model, in exactly the versions of its listing,
// several at a time. Files that the newest living copy of the model already has are linked instead
// of fetched, unless the model has changed them. If objects have changed since the listing, Copy
// fails with objectstore.ErrChanged and leaves nothing; its caller lists again. Files have mode
// 0600, directories 0700; links and other modes are not taken from a store.
//
// Archives fetches single objects, each version once for all concurrent callers, and keeps the file
// as long as it has users. Seen returns the version that was seen last without a wait. Renew looks
// again in the background, with one goroutine for each directory of a store.
//
// Timeouts: a call of the store ends when it makes no progress for Config.Stall, which means 100
// objects of a listing or 64 KiB of a body. Time spent on the disk does not count. A listing ends
// after an hour. A large model may take any time, but a trickling one loses its slot.
//
// A Mirror works from Open to Close, Archives from NewArchives to Close. Close ends renewals and
// waits for them. Copies are removed by their users or with their workspace. An archive is known
// from Watch on, until no model has asked for it for some minutes and none uses its file. When the
// last waiter of a running fetch leaves, the fetch is cancelled.
//
// Locks: Mirror.mu guards the listing, the renewal state and the living copies; Archives.mu the
// known archives and their fetches; fetcher.space the disk space granted to copies, and the disk's
// free space is read under it. All are leaves. No call of the store is made under them, and no tree
// is removed under them except by Archives.Close. The holder of door.opening opens the door,
// removes files of killed servers, and may wait for the store. Any goroutine may call anything
// here.
//
// Memory: a listing takes some 100 bytes for each object, its key and version, and each
// configuration. Config.MaxObjects and Config.MaxBytes bound them. A renewal shares unchanged data
// with the previous listing. Models are immutable.
package mirror
