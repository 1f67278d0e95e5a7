// Package mirror keeps on disk what is served of a model repository in an object store.
//
//	objectstore.Bucket ── Open, Renew, Look ──▶ listing: Model by name    what the store had, and when
//	Model          ── Copy ──────────────▶ copies.Copy                its files, complete and verified
//	URL            ── Archives.Fetch ────▶ Archive                    one object: a packed execution environment
//
// A listing is complete or is not taken: Models and Model answer from the last complete one without a look at the store and
// without a wait. It has the text of each model's configuration, so that what a model is can be told without the store.
// Renew takes a new listing in a goroutine of the mirror's, one at a time; Look lists one model for its caller. A store that
// fails leaves the listing as it is: the log says so once, and once more when the store answers again.
//
// Copy makes a directory of the objects of one Model, exactly of the versions that its listing showed, several at once. What
// the newest living copy of the same model has already is linked and not fetched again, unless the model has changed the file.
// A copy whose objects have changed since is given up with objectstore.ErrChanged, and its caller looks again. Nothing is left
// after an error. Files have mode 0600, directories 0700; links and other modes do not come from a store.
//
// Archives fetches single objects, each version once for all that want it at the same time, and keeps its file as long as
// it has users. It remembers which version of each was seen last: Seen tells that without a wait, and Renew looks anew behind its
// caller, each directory of a store in a goroutine of its own.
//
// Time: a call of the store ends when it has made no progress for Config.Stall, which is counted from the last 100 objects of a
// listing or the last 64 KiB of a body, without the time that the disk takes. A listing ends after an hour. A large model may take as long as it likes, and one
// that trickles gives its place up.
//
// States: a Mirror works from Open to Close. Close ends renewals and waits for them; copies are removed by their users or
// with their copies.Place. Archives work from NewArchives to Close. An archive is known from Watch on, until no model has asked
// for it for some minutes and none uses its file. A fetch is under way, then over; the last of its waiters that goes away ends it.
//
// Locks: Mirror.mu, over the listing, what is renewed and the living copies; Archives.mu, over what is known and the fetches;
// fetcher.space, over the disk space that copies have been granted, under which the disk is asked what is free. All are leaves,
// and no call of the store is made under them. No tree is removed under them either, but by Archives.Close. A door has a channel
// beside, whose holder opens the door, removes what killed servers have left, and may wait for the store.
// Any goroutine may call anything here.
//
// Memory: a listing holds some 100 bytes for each object, its key and version, and each configuration. Config.MaxObjects and
// Config.MaxBytes bound them. A renewal shares what has not changed with the listing before. Models do not change.
package mirror
