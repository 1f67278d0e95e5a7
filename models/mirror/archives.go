package mirror

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/copies"
	"github.com/nereid-serving/nereid/objectstore"
	"github.com/nereid-serving/nereid/panics"
)

const (
	// idleArchive is how long an archive is known that no model asks for and none uses.
	idleArchive = 10 * time.Minute
	// archiveTries is how often an archive is fetched that changes meanwhile.
	archiveTries = 5
)

// ArchivesConfig sets up Archives.
type ArchivesConfig struct {
	Open objectstore.Opener
	// Base is the directory in which fetched archives of a scheme lie, "" that for temporary files; Variable is the
	// environment variable that names it, for texts.
	Base, Variable func(scheme string) string
	// Changed is called when Renew finds another version of an archive. It returns at once. Nil: nothing is.
	Changed func()
	// Stall is how long a call of a store may go without progress; 0 is the default.
	Stall time.Duration
	Log   zerolog.Logger
}

// Archives keeps archives of execution environments that lie in object stores: single objects, which models of any repository
// may name.
type Archives struct {
	config   ArchivesConfig
	lifetime context.Context // of fetches and of looks that Renew has begun
	end      context.CancelFunc
	work     panics.WaitGroup

	mu     sync.Mutex
	closed bool
	known  map[string]*archive            // by name
	doors  map[objectstore.Location]*door // by directory
	places map[string]*place              // by scheme
}

// place is where the archives of a scheme lie.
type place struct {
	*copies.Place
	sweep func() // removes what servers that were killed have left, once, and has other callers wait for that; not under Archives.mu
}

// archive is an object that models name. Archives.mu guards it.
type archive struct {
	location objectstore.Location // as the model that named it first did: its credentials are taken
	key      string               // in the directory of the location
	door     *door
	sum      uint64    // of the version that was seen last; 0: none was
	begun    uint64    // looks so far, which are numbered by this
	seenBy   uint64    // the look that has set sum: one that began earlier does not replace it
	asked    time.Time // for the last time by a model
	failing  bool      // the last look that Renew has begun has failed
	newest   *fetching // nil until a model wanted the file
}

// door is the directory of archives, once it is opened. Its calls are those of a fetcher.
type door struct {
	opening chan struct{} // has a value while the goroutine that put it there opens the fetcher
	opened  *fetcher      // nil: not yet; under Archives.mu
	looking bool          // Renew looks at its archives; under Archives.mu
	sweep   func()        // that of its place
	config  Config
}

// fetching is one fetch of one version of an archive, which may be over. Archives.mu guards all but the channel.
type fetching struct {
	sum     uint64
	waiters int // that have not been handed copy or err
	cancel  context.CancelFunc
	done    chan struct{} // closed when over is set
	over    bool
	copy    *copies.Copy // the waiters' own, each once
	path    string       // of the file
	lost    bool         // the file was removed, by a cleaner of temporary files say, though it has users
	err     error
}

// Archive is a fetched archive, of which the caller of Fetch is a user.
type Archive struct {
	*copies.Copy
	Path string // of the file
	Sum  uint64 // of the version, as Seen tells it
}

// NewArchives makes one that knows no archive. Nothing is opened before a model names one.
func NewArchives(config ArchivesConfig) *Archives {
	config.Stall = cmp.Or(config.Stall, DefaultStall)
	a := &Archives{config: config, known: make(map[string]*archive), doors: make(map[objectstore.Location]*door), places: make(map[string]*place)}
	a.lifetime, a.end = context.WithCancel(context.Background())
	return a
}

// Close ends fetches, waits for them, closes the stores and removes what was fetched, used or not.
func (a *Archives) Close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.end()
	a.work.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range a.doors {
		d.close()
	}
	for _, place := range a.places {
		place.Close()
	}
}

// close ends the connections to the store. Callers hold Archives.mu.
func (d *door) close() {
	if d.opened != nil {
		_ = d.opened.bucket.Close()
	}
}

// archiveMark begins the names of archives: no path of a file does.
const archiveMark = "\x00"

// IsArchive reports whether a name is one that Watch has returned, and not the path of a file.
func IsArchive(name string) bool { return strings.HasPrefix(name, archiveMark) }

func nameOf(l objectstore.Location) string {
	return archiveMark + strings.Join([]string{l.Scheme, l.Endpoint, l.Account, l.Bucket, l.Path}, "\x00")
}

// Watch has Renew look at the archive at a location, as long as models ask for it, and returns its name. Models that name the
// same object get the same name. It does not wait. The error says that there can be no such object.
func (a *Archives) Watch(l objectstore.Location) (name string, err error) {
	if a.config.Open == nil {
		return "", l.Unsupported()
	}
	directory, key, named := l.Object()
	if named {
		err = objectstore.CheckKey(key)
	}
	switch {
	case !named:
		return "", infer.Errorf(infer.Internal, "directory or file does not exist at %s (it names no object of the bucket)", l)
	case err != nil:
		return "", infer.Errorf(infer.Internal, "directory or file does not exist at %s (%v)", l, err)
	}
	l = directory.At(strings.TrimPrefix(directory.Path+"/"+key, "/"))
	name = nameOf(l)
	a.mu.Lock()
	defer a.mu.Unlock()
	if known := a.known[name]; known != nil {
		known.asked = time.Now()
		return name, nil
	}
	a.forgetLocked()
	a.known[name] = &archive{location: l, key: key, door: a.doorLocked(directory), asked: time.Now()}
	return name, nil
}

// doorLocked returns the door of a directory. Callers hold a.mu.
func (a *Archives) doorLocked(directory objectstore.Location) *door {
	at := directory
	at.Text = ""
	d := a.doors[at]
	if d == nil {
		in := a.places[at.Scheme]
		if in == nil {
			made := copies.NewPlace(a.config.Base(at.Scheme), a.config.Log)
			in = &place{made, sync.OnceFunc(made.Sweep)}
			a.places[at.Scheme] = in
		}
		d = &door{opening: make(chan struct{}, 1), sweep: in.sweep, config: Config{
			Location: directory, Open: a.config.Open, Place: in.Place, Variable: a.config.Variable(at.Scheme), Stall: a.config.Stall, Log: a.config.Log,
		}}
		a.doors[at] = d
	}
	return d
}

// forgetLocked forgets archives that no model has asked for in a while and none uses, and closes what is not needed without
// them: uploaded models may bring new names for ever. Callers hold a.mu.
func (a *Archives) forgetLocked() {
	needed := make(map[*door]bool)
	for name, known := range a.known {
		if time.Since(known.asked) > idleArchive && !known.newest.used() {
			delete(a.known, name)
			continue
		}
		needed[known.door] = true
	}
	for at, d := range a.doors {
		if !needed[d] && !d.looking {
			d.close()
			delete(a.doors, at)
		}
	}
}

// used reports whether a fetch is under way, or a model uses what it has fetched. Callers hold Archives.mu.
func (f *fetching) used() bool {
	return f != nil && (!f.over || f.copy != nil && f.copy.Used())
}

// Seen is the sum of the version of an archive that was seen last, 0 if none was. Equal sums are equal versions. It does not
// wait.
func (a *Archives) Seen(name string) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.known[name]
	if known == nil {
		return 0
	}
	known.asked = time.Now()
	return known.sum
}

// Look asks the store for the version of an archive, for its caller, who waits. Of a name that is not known any more it asks
// nothing.
func (a *Archives) Look(ctx context.Context, name string) error {
	a.mu.Lock()
	known := a.known[name]
	a.mu.Unlock()
	if known == nil {
		return nil
	}
	_, _, err := a.look(ctx, known)
	return err
}

// look finds the object of an archive, and returns it with the fetcher that reads it.
func (a *Archives) look(ctx context.Context, known *archive) (*fetcher, objectstore.Object, error) {
	f, err := a.enter(ctx, known.door)
	if err != nil {
		return nil, objectstore.Object{}, err
	}
	a.mu.Lock()
	known.begun++
	number := known.begun
	a.mu.Unlock()
	o, err := f.find(ctx, known.key)
	if err != nil {
		return nil, o, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if number > known.seenBy { // looks overtake each other
		known.sum, known.seenBy = sumOf(o), number
	}
	return f, o, nil
}

// enter opens a directory, unless it is open.
func (a *Archives) enter(ctx context.Context, d *door) (*fetcher, error) {
	select {
	case d.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-d.opening }()
	a.mu.Lock()
	opened := d.opened
	a.mu.Unlock()
	if opened != nil {
		return opened, nil
	}
	d.sweep() // without the lock: what is left may be large
	f := &fetcher{config: d.config}
	if err := f.open(ctx); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		_ = f.bucket.Close()
		return nil, infer.Errorf(infer.Unavailable, "Server exiting")
	}
	d.opened = f
	return f, nil
}

// errFound ends a listing.
var errFound = errors.New("found")

// find lists the object of a key.
func (f *fetcher) find(ctx context.Context, key string) (found objectstore.Object, err error) {
	w := f.watch(ctx)
	defer w.stop()
	below := false
	err = f.bucket.List(w.ctx, key, func(o objectstore.Object) error {
		switch {
		case o.Key == key && !o.Directory:
			found = o
			return errFound
		case o.Key == key, strings.HasPrefix(o.Key, key+"/"):
			below = true // and the object itself does not follow: "key" comes before "key/"
			return errFound
		}
		return nil
	})
	var refused *objectstore.RefusedError // beside it
	switch {
	case errors.Is(err, errFound) && !below:
		return found, nil
	case below:
		return found, infer.Errorf(infer.Internal, "directory or file does not exist at %s (it is a directory: an environment that lies in a store is an archive, as conda-pack makes it)", f.config.Location.Join(key))
	case err == nil, errors.As(err, &refused):
		return found, absent{infer.Errorf(infer.Internal, "directory or file does not exist at %s", f.config.Location.Join(key))}
	}
	return found, stallOf(w, err)
}

// absent is the error of an object that is not there.
type absent struct{ error }

// Unwrap gives the text that clients see.
func (e absent) Unwrap() []error { return []error{e.error, objectstore.ErrAbsent} }

// sumOf tells versions apart. It is not 0.
func sumOf(o objectstore.Object) uint64 {
	sum := fnv.New64a()
	version := o.Version
	if version == "" {
		version = o.Modified.UTC().String()
	}
	_, _ = sum.Write([]byte(version + "\x00" + strconv.FormatInt(o.Size, 10)))
	return max(sum.Sum64(), 1)
}

// Renew has archives looked at that models ask for, unless that is under way. It does not wait: a store that hangs holds up the
// look at its own directory alone.
func (a *Archives) Renew() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	a.forgetLocked()
	todo := make(map[*door][]*archive)
	for _, known := range a.known {
		if !known.door.looking {
			todo[known.door] = append(todo[known.door], known)
		}
	}
	for d, list := range todo {
		d.looking = true
		a.work.Add() // under mu: Close waits for every look that has begun
		panics.Go(a.config.Log, panics.Models, func() {
			defer a.work.Done()
			defer func() {
				a.mu.Lock()
				defer a.mu.Unlock()
				d.looking = false
			}()
			for _, known := range list {
				a.renew(known)
			}
		}, nil)
	}
}

// renew looks at one archive. The log says once that its store fails, and once that it answers again.
func (a *Archives) renew(known *archive) {
	a.mu.Lock()
	before := known.sum
	a.mu.Unlock()
	_, _, err := a.look(a.lifetime, known)
	if a.lifetime.Err() != nil {
		return
	}
	a.mu.Lock()
	was, changed := known.failing, err == nil && known.sum != before
	known.failing = err != nil
	a.mu.Unlock()
	switch {
	case err != nil && !was:
		a.config.Log.Error().Msgf("look for changes of the execution environment %s: %v; what is loaded stays, and the log says when it is there again", known.location, err)
	case err == nil && was:
		a.config.Log.Info().Msgf("the execution environment %s is there again", known.location)
	}
	if changed && a.config.Changed != nil {
		a.config.Changed()
	}
}

// Fetch has the file of an archive, in the version of now, be on the disk. Callers that want the same version share one file and
// one fetch, which goes on until all of them have given it up. The caller drops what it gets.
func (a *Archives) Fetch(ctx context.Context, l objectstore.Location) (*Archive, error) {
	name, err := a.Watch(l)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	known := a.known[name]
	a.mu.Unlock()
	for try := 1; ; try++ {
		f, o, err := a.look(ctx, known)
		if err != nil {
			return nil, err
		}
		got, err := a.join(ctx, known, f, o)
		if !errors.Is(err, objectstore.ErrChanged) {
			return got, err
		}
		if try == archiveTries {
			return nil, infer.Errorf(infer.Unavailable, "%s changes while it is fetched: %d fetches were begun, and none became complete; load the model when its upload has ended", known.location, try)
		}
		if err := a.pause(ctx, time.Duration(try)*100*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// pause waits before an archive is fetched again: its upload goes on.
func (a *Archives) pause(ctx context.Context, length time.Duration) error {
	wait := time.NewTimer(length)
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-a.lifetime.Done():
		return infer.Errorf(infer.Unavailable, "Server exiting")
	}
}

// join waits for the fetch of a version, which it begins unless another caller has.
func (a *Archives) join(ctx context.Context, known *archive, f *fetcher, o objectstore.Object) (*Archive, error) {
	a.mu.Lock()
	now, sum := known.newest, sumOf(o)
	for !a.closed && now != nil && now.sum == sum && now.over && now.copy != nil && !now.lost && now.copy.TryHold() {
		// The disk is asked without the lock: one that hangs holds up no other model. The hold keeps the server from removing the file
		// meanwhile.
		a.mu.Unlock()
		if _, err := os.Lstat(now.path); err == nil {
			return &Archive{now.copy, now.path, now.sum}, nil
		}
		now.copy.Drop()
		a.mu.Lock()
		// Another caller may have found it lost too, and have begun the next fetch.
		now.lost = true
		now = known.newest
	}
	if a.closed {
		a.mu.Unlock()
		return nil, infer.Errorf(infer.Unavailable, "Server exiting")
	}
	if now == nil || now.sum != sum || now.over { // its file is gone, or there was none
		now = a.beginLocked(known, f, o)
	}
	now.waiters++
	a.mu.Unlock()
	select {
	case <-now.done:
		if now.err != nil {
			return nil, now.err
		}
		return &Archive{now.copy, now.path, now.sum}, nil
	case <-ctx.Done():
	}
	a.leave(known, now).Drop()
	return nil, context.Cause(ctx)
}

// leave takes a waiter away that has not looked at the end of a fetch. The last one ends it. If it is over, the caller drops
// what the waiter was handed.
func (a *Archives) leave(known *archive, now *fetching) (handed *copies.Copy) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.over {
		return now.copy
	}
	if now.waiters--; now.waiters == 0 {
		now.cancel()
		if known.newest == now { // the next caller begins anew
			known.newest = nil
		}
	}
	return nil
}

// beginLocked begins the fetch of a version. Callers hold a.mu, and become its waiters under it.
func (a *Archives) beginLocked(known *archive, f *fetcher, o objectstore.Object) *fetching {
	ctx, cancel := context.WithCancel(a.lifetime)
	now := &fetching{sum: sumOf(o), cancel: cancel, done: make(chan struct{})}
	known.newest = now
	a.work.Add()
	finish := func(c *copies.Copy, path string, err error) {
		cancel()
		var late *copies.Copy          // what a context that has ended came too late for
		defer func() { late.Drop() }() // without the lock: it removes a tree
		a.mu.Lock()
		defer a.mu.Unlock()
		if now.waiters == 0 {
			late, c = c, nil
		}
		for range now.waiters - 1 { // the first gets the maker's hold
			c.Hold()
		}
		now.copy, now.path, now.err, now.over = c, path, err, true
		close(now.done)
	}
	panics.Go(a.config.Log, panics.Models, func() {
		defer a.work.Done()
		var c *copies.Copy
		var path string
		err := panics.Run(a.config.Log, panics.Models, func() (err error) {
			c, path, err = f.take(ctx, known.key, o)
			return err
		})
		if a.lifetime.Err() != nil && err != nil {
			err = infer.Errorf(infer.Unavailable, "Server exiting")
		}
		finish(c, path, err)
	}, nil)
	return now
}
