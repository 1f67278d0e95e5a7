package models

import (
	"context"
	"sync"
	"time"

	"github.com/nereid-serving/nereid/models/catalog"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/panics"
)

// lookers is the number of models that are examined concurrently.
const lookers = 4

// poller watches the repository and makes the changes that it finds. A poll does not wait for the
// changes of earlier polls; only related models wait for each other. A failed change is retried by
// the next poll, as long as the model is not served from its current files.
type poller struct {
	*Registry
	works map[repository.Identity]*work // the last change of each model, until it is done
	// done is called when a work is done, by the work's goroutine; may be nil.
	done func(w *work, failures map[repository.Identity]error)
}

// work is one change that a poll has begun.
type work struct {
	sources map[repository.Identity]*catalog.Source // nil: the model is gone
	// contexts bound the loads of single models, which a later work may cancel.
	contexts map[repository.Identity]context.Context
	cancel   map[repository.Identity]context.CancelCauseFunc
	done     chan struct{} // closed when it is

	// Loads write files under mu, and the poller reads it. A load reads its model again if the model
	// changes while it is copied, and must not be cancelled for a change that it has found itself.
	mu sync.Mutex
	// files are the footprints from which models are being loaded; nil: being read again. The
	// footprints are immutable.
	files map[repository.Identity]*repository.Footprint
}

func newWork() *work {
	return &work{
		sources: make(map[repository.Identity]*catalog.Source), contexts: make(map[repository.Identity]context.Context),
		cancel: make(map[repository.Identity]context.CancelCauseFunc), done: make(chan struct{}),
		files: make(map[repository.Identity]*repository.Footprint),
	}
}

// loadedFrom returns the footprint from which a model is being loaded. It is nil while the model is
// being read again, and if the model is gone.
func (w *work) loadedFrom(id repository.Identity) *repository.Footprint {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.files[id]
}

// reread returns the callback by which a load reports that it reads its model again, and the
// result. It is nil if no poll has begun the load.
func (w *work) reread(id repository.Identity) func(files *repository.Footprint) {
	if w == nil {
		return nil
	}
	return func(files *repository.Footprint) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.files[id] = files
	}
}

func newPoller(r *Registry) *poller {
	return &poller{Registry: r, works: make(map[repository.Identity]*work)}
}

// run polls at once, after each interval, and whenever a store has changed, until ctx ends. A poll
// begins new listings of stores and uses the last complete ones.
func (p *poller) run(ctx context.Context, interval time.Duration) {
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	p.config.Repository.Renew(0)
	for ctx.Err() == nil {
		_ = panics.Run(p.config.Log, panics.Models, func() error { p.look(ctx); return nil })
		select {
		case <-ticks.C:
			p.config.Repository.Renew(0)
		case <-p.config.Repository.Changed():
		case <-ctx.Done():
		}
	}
}

// look finds changes and begins to apply them.
func (p *poller) look(ctx context.Context) {
	p.forgetDone()
	ids, rejected, err := p.config.Repository.Scan()
	if err != nil { // nothing counts as removed
		p.config.Log.Error().Msgf("check the model repository for changes: %v", err)
		return
	}
	sources := p.removed(ids, rejected)
	for id, s := range p.modified(ids, rejected) {
		sources[id] = s
	}
	for _, group := range p.catalog.Components(sources) {
		p.begin(ctx, group, sources)
	}
}

// forgetDone removes works that are done.
func (p *poller) forgetDone() {
	for id, w := range p.works {
		select {
		case <-w.done:
			delete(p.works, id)
		default:
		}
	}
}

// removed finds the models that are served, or are being loaded, but have no directory any more, or
// more than one.
func (p *poller) removed(ids []repository.Identity, rejected map[repository.Identity]string) map[repository.Identity]*catalog.Source {
	there := repository.SetOf(ids...)
	for _, id := range repository.KeysOf(rejected).Sorted() {
		p.config.Log.Error().Msg(repository.NotUnique(id.String()).Error())
		delete(there, id)
	}
	gone := make(map[repository.Identity]*catalog.Source)
	for _, id := range p.catalog.Missing(there, func(id repository.Identity, now bool) bool {
		if w := p.works[id]; w != nil {
			return w.sources[id] != nil
		}
		return now
	}) {
		gone[id] = nil
	}
	return gone
}

// modified reads the models that are new or have changed since they were read.
func (p *poller) modified(ids []repository.Identity, rejected map[repository.Identity]string) map[repository.Identity]*catalog.Source {
	var mu sync.Mutex
	sources, problems := make(map[repository.Identity]*catalog.Source), make(map[repository.Identity]error)
	todo := make(chan repository.Identity) // closed when all have been handed out
	var all sync.WaitGroup
	for range min(lookers, len(ids)) {
		all.Go(panics.Guard(p.config.Log, panics.Models, func() {
			for id := range todo {
				var s *catalog.Source
				err := panics.Run(p.config.Log, panics.Models, func() (err error) {
					s, err = p.examine(id)
					return err
				})
				mu.Lock()
				if err != nil {
					problems[id] = err
				} else if s != nil {
					sources[id] = s
				}
				mu.Unlock()
			}
		}, nil))
	}
	for _, id := range ids {
		if _, no := rejected[id]; !no {
			todo <- id
		}
	}
	close(todo)
	all.Wait()
	for _, id := range repository.KeysOf(problems).Sorted() {
		p.notPolled(id, problems[id])
	}
	return sources
}

// examine reads a model if it has changed, and returns nil otherwise.
func (p *poller) examine(id repository.Identity) (*catalog.Source, error) {
	outside := p.catalog.Outside(id)
	w := p.works[id]
	var loading *repository.Footprint
	if w != nil && w.sources[id] != nil {
		if loading = w.loadedFrom(id); loading == nil {
			return nil, nil //nolint:nilnil // its load finds out
		}
		outside = append(outside, loading.Paths()...)
	}
	files, err := p.config.Repository.Footprint(id, outside...)
	if err != nil {
		return nil, err
	}
	if w != nil {
		// Its load may have begun to read it since. Then files is older than the load's result, or equal.
		if loading != nil && (loading.Same(files) || w.loadedFrom(id) != loading) {
			return nil, nil //nolint:nilnil // as the doc says
		}
	} else if p.catalog.IsServed(id, files) || p.catalog.Waits(id, files) {
		return nil, nil //nolint:nilnil // as the doc says
	}
	return p.source(id, nil)
}

// begin starts to change related models. It cancels their loads in progress.
func (p *poller) begin(ctx context.Context, group []repository.Identity, sources map[repository.Identity]*catalog.Source) {
	w := newWork()
	for _, id := range group {
		if earlier := p.works[id]; earlier != nil {
			earlier.cancel[id](errOvertaken)
		}
		p.works[id] = w
		if w.sources[id] = sources[id]; sources[id] != nil {
			w.files[id] = &sources[id].Files
		}
		w.contexts[id], w.cancel[id] = context.WithCancelCause(ctx)
	}
	p.polls.Go(panics.Guard(p.config.Log, panics.Models, func() {
		defer close(w.done)
		defer func() {
			for _, cancel := range w.cancel {
				cancel(nil)
			}
		}()
		failures := p.bringGroup(ctx, group, sources, nil, w) // they have been logged
		if p.done != nil {
			p.done(w, failures)
		}
	}, nil))
}
