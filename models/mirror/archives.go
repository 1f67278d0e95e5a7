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
	// idleArchive is the time after which an unused archive is forgotten that no model asks for.
	idleArchive = 10 * time.Minute
	// archiveTries bounds the fetches of an archive that keeps changing.
	archiveTries = 5
	// mostUnused bounds the archives that no model uses: uploaded models may name any, each with a
	// connection of its own.
	mostUnused = 1000
	// mostLooks bounds the looks that Renew makes at a time: each reads a listing.
	mostLooks = 64
)

// ArchivesConfig configures Archives.
type ArchivesConfig struct {
	Open objectstore.Opener
	// Base is the directory for fetched archives of a scheme, "" for the temporary directory.
	// Variable is the environment variable that names it, for texts.
	Base, Variable func(scheme string) string
	// Changed is called when Renew finds another version of an archive; may be nil. It returns at
	// once.
	Changed func()
	// Stall is the time without progress after which a call of a store fails; 0 is the default.
	Stall time.Duration
	Log   zerolog.Logger
}

// Archives keeps archives of execution environments from object stores: single objects, which
// models of any repository may name.
type Archives struct {
	config   ArchivesConfig
	lifetime context.Context // of fetches and of looks that Renew has begun
	end      context.CancelFunc
	work     panics.WaitGroup
	looks    chan struct{} // has a value for each look of Renew; the buffer bounds them

	mu     sync.Mutex
	closed bool
	known  map[string]*archive            // by name. bound: the archives that models use, and mostUnused
	doors  map[objectstore.Location]*door // by directory. bound: the known archives
	spaces map[string]*archiveSpace       // by scheme. bound: the schemes
}

// archiveSpace is the workspace for the archives of a scheme.
type archiveSpace struct {
	*copies.Workspace
	sweep func() // removes files of killed servers, once; concurrent callers wait; not under Archives.mu
}

// archive is an object that models name. Archives.mu guards it.
type archive struct {
	location objectstore.Location // as the first model named it, which determines the credentials
	key      string               // in the directory of the location
	door     *door
	sum      uint64    // of the version that was seen last; 0: none
	begun    uint64    // number of looks so far
	seenBy   uint64    // number of the look that set sum; earlier looks do not replace it
	asked    time.Time // last time that a model asked
	failing  bool      // the last look by Renew has failed
	callers  int       // of Fetch
	newest   *fetching // nil until a model wanted the file
}

// door is a directory of archives in a store, opened on first use. Its calls are those of a
// fetcher.
type door struct {
	opening chan struct{} // has a value while a goroutine opens the fetcher
	opened  *fetcher      // nil: not yet; under Archives.mu
	looking bool          // Renew looks at its archives; under Archives.mu
	sweep   func()        // that of its archiveSpace
	config  Config
}

// fetching is one fetch of one version of an archive, running or over. Archives.mu guards all
// fields but the channel.
type fetching struct {
	sum     uint64
	waiters int // waiters that have not received copy or err
	cancel  context.CancelFunc
	done    chan struct{} // closed when over is set
	over    bool
	copy    *copies.Copy // each waiter is a user
	path    string       // of the file
	lost    bool         // the file was removed although it has users, for example by a cleaner of temporary files
	err     error
}

// Archive is a fetched archive. The caller of Fetch is a user.
type Archive struct {
	*copies.Copy
	Path string // of the file
	Sum  uint64 // of the version, as Seen tells it
}

// NewArchives makes Archives without a known archive. It opens nothing before a model names one.
func NewArchives(config ArchivesConfig) *Archives {
	config.Stall = cmp.Or(config.Stall, DefaultStall)
	a := &Archives{config: config, looks: make(chan struct{}, mostLooks), known: make(map[string]*archive), doors: make(map[objectstore.Location]*door), spaces: make(map[string]*archiveSpace)}
	a.lifetime, a.end = context.WithCancel(context.Background())
	return a
}

// Close cancels fetches, waits for them, closes the stores and removes all fetched files.
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
	for _, space := range a.spaces {
		space.Close()
	}
}

// close ends the connections to the store. Callers hold Archives.mu.
func (d *door) close() {
	if d.opened != nil {
		_ = d.opened.bucket.Close()
	}
}

// archiveMark begins the names of archives; no file path does.
const archiveMark = "\x00"

// IsArchive reports whether a name comes from Watch and is not a file path.
func IsArchive(name string) bool { return strings.HasPrefix(name, archiveMark) }

func nameOf(l objectstore.Location) string {
	return archiveMark + strings.Join([]string{l.Scheme, l.Endpoint, l.Account, l.Bucket, l.Path}, "\x00")
}

// Watch makes Renew look at the archive at a location, as long as models ask for it, and returns
// its name. The same object always gets the same name. Watch does not wait. An error means that
// there can be no such object.
func (a *Archives) Watch(l objectstore.Location) (name string, err error) {
	known, err := a.watch(l, 0)
	if err != nil {
		return "", err
	}
	return nameOf(known.location), nil
}

// watch returns the archive at a location, with more callers of Fetch than before.
func (a *Archives) watch(l objectstore.Location, callers int) (*archive, error) {
	if a.config.Open == nil {
		return nil, l.Unsupported()
	}
	var err error
	directory, key, named := l.Object()
	if named {
		err = objectstore.CheckKey(key)
	}
	switch {
	case !named:
		return nil, infer.Errorf(infer.Internal, "directory or file does not exist at %s (it names no object of the bucket)", l)
	case err != nil:
		return nil, infer.Errorf(infer.Internal, "directory or file does not exist at %s (%v)", l, err)
	}
	l = directory.At(strings.TrimPrefix(directory.Path+"/"+key, "/"))
	name := nameOf(l)
	a.mu.Lock()
	defer a.mu.Unlock()
	if known := a.known[name]; known != nil {
		known.asked = time.Now()
		known.callers += callers
		return known, nil
	}
	a.forgetLocked()
	known := &archive{location: l, key: key, door: a.doorLocked(directory), asked: time.Now(), callers: callers}
	a.known[name] = known
	return known, nil
}

// doorLocked returns the door of a directory. Callers hold a.mu.
func (a *Archives) doorLocked(directory objectstore.Location) *door {
	at := directory
	at.Text = ""
	d := a.doors[at]
	if d == nil {
		in := a.spaces[at.Scheme]
		if in == nil {
			made := copies.NewWorkspace(a.config.Base(at.Scheme), a.config.Log)
			in = &archiveSpace{made, sync.OnceFunc(made.Sweep)}
			a.spaces[at.Scheme] = in
		}
		d = &door{opening: make(chan struct{}, 1), sweep: in.sweep, config: Config{
			Location: directory, Open: a.config.Open, Workspace: in.Workspace, Variable: a.config.Variable(at.Scheme), Stall: a.config.Stall, Log: a.config.Log,
		}}
		a.doors[at] = d
	}
	return d
}

// forgetLocked removes archives that no model has requested for a while and none uses. If there are
// too many, it removes the archive whose request is the oldest. It also closes doors without
// archives, because uploaded models may bring new names forever. Callers hold a.mu.
func (a *Archives) forgetLocked() {
	unused, first := 0, ""
	for name, known := range a.known {
		switch {
		case known.callers > 0 || known.newest.used():
		case time.Since(known.asked) > idleArchive:
			delete(a.known, name)
		default:
			if unused++; first == "" || known.asked.Before(a.known[first].asked) {
				first = name
			}
		}
	}
	if unused >= mostUnused {
		delete(a.known, first)
	}
	needed := make(map[*door]bool) // bound: the doors
	for _, known := range a.known {
		needed[known.door] = true
	}
	for at, d := range a.doors {
		if !needed[d] && !d.looking {
			d.close()
			delete(a.doors, at)
		}
	}
}

// used reports whether a fetch is running, or a model uses its result. Callers hold Archives.mu.
func (f *fetching) used() bool {
	return f != nil && (!f.over || f.copy != nil && f.copy.Used())
}

// Seen returns the sum of the version that was seen last, 0 if none was. Equal sums mean equal
// versions. It does not wait.
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

// Look asks the store for the version of an archive, and waits. For an unknown name it does
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

// enter opens a directory unless it is open.
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
	d.sweep() // without the lock: the remains may be large
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
		return found, infer.Errorf(infer.Internal, "directory or file does not exist at %s (it is a directory: an environment in a store must be an archive, as made by conda-pack)", f.config.Location.Join(key))
	case err == nil, errors.As(err, &refused):
		return found, absent{infer.Errorf(infer.Internal, "directory or file does not exist at %s", f.config.Location.Join(key))}
	}
	return found, stallOf(w, err)
}

// absent is the error for a missing object.
type absent struct{ error }

// Unwrap returns the text for clients.
func (e absent) Unwrap() []error { return []error{e.error, objectstore.ErrAbsent} }

// sumOf identifies a version. It is never 0.
func sumOf(o objectstore.Object) uint64 {
	sum := fnv.New64a()
	version := o.Version
	if version == "" {
		version = o.Modified.UTC().String()
	}
	_, _ = sum.Write([]byte(version + "\x00" + strconv.FormatInt(o.Size, 10))) // bound: a store's reply
	return max(sum.Sum64(), 1)
}

// Renew starts new looks at the archives that models ask for, unless they are running. It does not
// wait. A store that hangs delays only the looks at its own directory, unless it has mostLooks of
// them.
func (a *Archives) Renew() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	a.forgetLocked()
	todo := make(map[*door][]*archive) // bound: the known archives
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

// renew looks at one archive. The log says once that its store fails, and once that it answers
// again.
func (a *Archives) renew(known *archive) {
	select {
	case a.looks <- struct{}{}:
		defer func() { <-a.looks }()
	case <-a.lifetime.Done():
		return
	}
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
		a.config.Log.Error().Msgf("check the execution environment %s for changes: %v; loaded models stay, and the log says when it is available again", known.location, err)
	case err == nil && was:
		a.config.Log.Info().Msgf("the execution environment %s is available again", known.location)
	}
	if changed && a.config.Changed != nil {
		a.config.Changed()
	}
}

// Fetch brings the current version of an archive to the disk. Callers that want the same version
// share one file and one fetch, which continues until all of them have given up. The caller drops
// the result.
func (a *Archives) Fetch(ctx context.Context, l objectstore.Location) (*Archive, error) {
	known, err := a.watch(l, 1)
	if err != nil {
		return nil, err
	}
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		known.callers--
	}()
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
			return nil, infer.Errorf(infer.Unavailable, "%s changes while it is fetched: %d fetches were started, and none was completed; load the model when its upload has ended", known.location, try)
		}
		if err := a.pause(ctx, time.Duration(try)*100*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// pause waits for an upload to continue before the next fetch.
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

// join waits for the fetch of a version, and begins it if necessary.
func (a *Archives) join(ctx context.Context, known *archive, f *fetcher, o objectstore.Object) (*Archive, error) {
	a.mu.Lock()
	now, sum := known.newest, sumOf(o)
	for !a.closed && now != nil && now.sum == sum && now.over && now.copy != nil && !now.lost && now.copy.TryHold() {
		// The disk is asked without the lock, so that a hanging disk delays no other model. The hold
		// keeps the file in place meanwhile.
		a.mu.Unlock()
		if _, err := os.Lstat(now.path); err == nil {
			return &Archive{now.copy, now.path, now.sum}, nil
		}
		now.copy.Drop()
		a.mu.Lock()
		// Another caller may also have found it lost, and begun the next fetch.
		now.lost = true
		now = known.newest
	}
	if a.closed {
		a.mu.Unlock()
		return nil, infer.Errorf(infer.Unavailable, "Server exiting")
	}
	if now == nil || now.sum != sum || now.over { // its file is gone or was never fetched
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

// leave removes a waiter that has not seen the end of a fetch. The last one cancels the fetch. If
// it is over, the caller drops the waiter's copy.
func (a *Archives) leave(known *archive, now *fetching) (handed *copies.Copy) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.over {
		return now.copy
	}
	if now.waiters--; now.waiters == 0 {
		now.cancel()
		if known.newest == now { // the next caller starts again
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
		var late *copies.Copy          // the copy that no waiter is left for
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
