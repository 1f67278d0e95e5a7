package models

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/nereid-serving/nereid/models/catalog"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/panics"
)

// The pause between two scans of all sources is at least developInterval, and developShare times
// the duration of the last scan, so that a large repository takes only that share of one core. A
// change counts once two scans have seen the same state, so that several files written together are
// one change.
const (
	developInterval = 150 * time.Millisecond
	developShare    = 20
)

// developer reloads models when their sources change. Unlike a poller it tries a model once for
// each state of its sources, and delays requests from the change until the load has ended.
type developer struct {
	*poller
	first bool // nothing has been scanned yet
	// tried has the sources of the last try.
	//
	// bound: the models of the repository
	tried map[repository.Identity]repository.Footprint
	// changing are sources that differ from the last try and have been seen once. Each holds the
	// gate.
	//
	// bound: the models of the repository
	changing map[repository.Identity]repository.Footprint
	// writes are the files that loads change themselves.
	//
	// bound: the models of the repository
	writes map[repository.Identity]*repository.Writes
	// passed are files changed by the last load itself; their state in tried counts as loaded.
	//
	// bound: the models of the repository
	passed map[repository.Identity][]string

	mu sync.Mutex
	// ready has sources as they were when a load ended, until the next scan; written by loads.
	//
	// bound: the models of the repository
	ready map[repository.Identity]repository.Footprint
}

func newDeveloper(r *Registry) *developer {
	d := &developer{
		poller: newPoller(r), first: true,
		tried: make(map[repository.Identity]repository.Footprint), changing: make(map[repository.Identity]repository.Footprint),
		writes: make(map[repository.Identity]*repository.Writes), passed: make(map[repository.Identity][]string),
		ready: make(map[repository.Identity]repository.Footprint),
	}
	d.done = d.ended
	return d
}

// run scans until ctx ends.
func (d *developer) run(ctx context.Context) {
	defer d.gates.openAll()
	for ctx.Err() == nil {
		began := time.Now()
		_ = panics.Run(d.config.Log, panics.Models, func() error { d.look(ctx); return nil })
		pause := time.NewTimer(max(developInterval, developShare*time.Since(began)))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
}

// look finds changed models and begins to load them.
func (d *developer) look(ctx context.Context) {
	busy := d.config.Busy != nil && d.config.Busy()
	d.forgetDone()
	ids, rejected, err := d.config.Repository.Scan()
	if err != nil { // a folder that is being replaced, perhaps
		return
	}
	sources := make(map[repository.Identity]*catalog.Source) // bound: the models of the repository
	if !d.config.Explicit && !busy {
		sources = d.removed(ids, rejected)
	}
	for _, id := range ids {
		if _, no := rejected[id]; no || d.config.Explicit && !d.catalog.Follows(id) || !d.isDue(id, busy) {
			continue
		}
		if changed := d.catalog.ChangedImports(id, d.tried[id], true); len(changed) > 0 {
			d.config.Log.Info().Msgf("reloading model '%s': %s has changed", id, changed[0])
		}
		// From here on the work holds the gate.
		delete(d.changing, id)
		s, err := d.source(id, nil)
		if err != nil {
			d.notPolled(id, err)
			d.catalog.Blame(id, err.Error())
			d.servesOn(id)
			d.gates.open(id.Name)
			continue
		}
		d.writes[id].Begin(d.tried[id])
		sources[id] = s
	}
	d.first = false
	for _, group := range d.catalog.Components(sources) {
		d.begin(ctx, group, sources)
	}
}

// isDue reports whether the sources of a model have changed and are stable, and no debugger has the
// terminal. Requests for the model wait from the change on.
func (d *developer) isDue(id repository.Identity, busy bool) bool {
	tried, known := d.tried[id]
	// bound: imports, of which repository.Imports accepts a limited number
	files, err := d.config.Repository.Footprint(id, append(d.catalog.Outside(id), tried.Paths()...)...)
	if err != nil {
		return false
	}
	before, changing := d.changing[id]
	w := d.writes[id]
	if w == nil {
		w = new(repository.Writes)
		d.writes[id] = w
	}
	loading := d.works[id] != nil
	if w.UnderWay() && !loading { // it has ended since the last look
		then := d.leftBehind(id, files)
		own, first := w.End(then, d.catalog.ChangedImports(id, then, false))
		if d.passed[id] = own; own != nil {
			tried = then
		}
		if first {
			d.config.Log.Warn().Msgf("model '%s' writes %s whenever it is loaded, so that change does not reload it; if you have changed the file, save it again", id, d.inModel(id, own[0]))
		}
	}
	if d.catalog.IsServed(id, files) || known && tried.Same(files) && d.catalog.IsAsTried(id, files, d.passed[id]) || !known && (d.first || d.catalog.IsWanted(id, files)) {
		d.tried[id] = files
		if changing { // it is as it was
			delete(d.changing, id)
			d.gates.open(id.Name)
		}
		return false
	}
	if !changing {
		d.gates.shut(id.Name)
		if busy {
			d.config.Log.Info().Msgf("model '%s' has changed: it will be reloaded when the debugger has returned the terminal", id)
		}
	}
	d.changing[id] = files
	if busy || !changing || !before.Same(files) {
		return false
	}
	if loading && w.UnderWay() {
		may, path, further := w.MayOvertake(files)
		if path != "" {
			d.config.Log.Warn().Msgf("model '%s' will be reloaded after the current load: %s has changed, as during earlier loads, which may have written it. If you have changed it and do not want to wait, %s", id, d.inModel(id, path), saves(further))
		}
		if !may {
			return false
		}
	}
	delete(d.passed, id)
	d.tried[id] = files
	return true
}

// saves asks the user to save a file that many times.
func saves(times int) string {
	if times == 1 {
		return "save it again"
	}
	return fmt.Sprintf("save it %d times more, a second apart", times)
}

// leftBehind returns the sources of a model at the end of its load, or now if that is unknown.
func (d *developer) leftBehind(id repository.Identity, now repository.Footprint) repository.Footprint {
	d.mu.Lock()
	defer d.mu.Unlock()
	if files, known := d.ready[id]; known {
		delete(d.ready, id)
		return files
	}
	return now
}

// inModel returns the path of a source as the operator would write it.
func (d *developer) inModel(id repository.Identity, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	directory, _ := d.config.Repository.Where(id)
	return filepath.Join(directory, path)
}

// ended is called by the goroutine of a work when the work has ended.
func (d *developer) ended(w *work, failures map[repository.Identity]error) {
	for id, source := range w.sources {
		if source == nil { // it has held no gate
			continue
		}
		if !errors.Is(failures[id], errOvertaken) {
			if files, err := d.config.Repository.Footprint(id, d.catalog.Outside(id)...); err == nil {
				d.mu.Lock()
				d.ready[id] = files
				d.mu.Unlock()
			}
		}
		if failures[id] != nil {
			d.servesOn(id)
		}
		d.gates.open(id.Name)
	}
}

// servesOn logs that a model still serves although its load has failed.
func (d *developer) servesOn(id repository.Identity) {
	if len(d.catalog.Ready(id)) > 0 {
		d.config.Log.Warn().Msgf("model '%s' continues with the previous version: it will be reloaded when its files change", id)
	}
}

// gates delay requests for models that are being reloaded. Nil gates delay nothing.
type gates struct {
	mu    sync.Mutex
	shuts map[string]*gate // by the name of the model; bound: the models of the repository
	over  bool             // no gate shuts any more
}

// gate is the gate of one model.
type gate struct {
	holds int           // number of open calls still needed
	opens chan struct{} // closed when holds is 0
}

// shut delays requests for a model until open has been called as many times.
func (g *gates) shut(model string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return
	}
	if g.shuts[model] == nil {
		g.shuts[model] = &gate{opens: make(chan struct{})}
	}
	g.shuts[model].holds++
}

func (g *gates) open(model string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	one := g.shuts[model]
	if one == nil {
		return
	}
	if one.holds--; one.holds == 0 {
		close(one.opens)
		delete(g.shuts, model)
	}
}

// openAll opens all gates permanently.
func (g *gates) openAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over = true
	for model, one := range g.shuts {
		close(one.opens)
		delete(g.shuts, model)
	}
}

// pass waits until the gate of a model is open, or until end.
func (g *gates) pass(model string, end <-chan struct{}) {
	g.mu.Lock()
	one := g.shuts[model]
	g.mu.Unlock()
	if one == nil {
		return
	}
	select {
	case <-one.opens:
	case <-end:
	}
}

// develop starts to watch the sources.
func (r *Registry) develop() {
	d := newDeveloper(r)
	// The first scan defines the loaded state. A file that is saved after startup is a change.
	_ = panics.Run(r.config.Log, panics.Models, func() error { d.look(r.polling); return nil })
	r.polls.Go(panics.Guard(r.config.Log, panics.Models, func() { d.run(r.polling) }, nil))
}
