package mirror

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/objectstore"
	"github.com/nereid-serving/nereid/panics"
)

const (
	// maxTextBytes bounds a configuration.
	maxTextBytes = 4 << 20
	// lookTries bounds the listings of a model whose configuration changes between listing and
	// reading.
	lookTries = 4
	// mostGone bounds the results of looks for missing models, whose names may come from any client.
	mostGone = 1000
)

// Renew begins a listing unless one is running, or the last one, even a failed one, is younger than
// age. It does not wait.
func (m *Mirror) Renew(age time.Duration) {
	m.mu.Lock()
	if m.closed || m.renewing || time.Since(m.tried) < age {
		m.mu.Unlock()
		return
	}
	m.renewing, m.tried, m.looked = true, time.Now(), make(map[string]*Model)
	before := m.models
	m.renewals.Add() // under mu: Close waits for every renewal that has begun
	m.mu.Unlock()
	panics.Go(m.config.Log, panics.Models, func() {
		defer m.renewals.Done()
		m.renew(before)
	}, nil)
}

// renew takes a listing and, if it succeeds, replaces the last one.
func (m *Mirror) renew(before map[string]*Model) {
	began := time.Now()
	var models map[string]*Model
	// A panic counts as a failed listing: the next one begins as usual.
	err := panics.Run(m.config.Log, panics.Models, func() (err error) {
		models, err = m.list(m.lifetime, before)
		return err
	})
	changed := m.renewed(models, began, err)
	switch {
	case m.lifetime.Err() != nil:
	case err != nil:
		m.failed(err)
	default:
		m.answered()
	}
	if changed && m.config.Changed != nil {
		m.config.Changed()
	}
}

// renewed ends a renewal, and reports whether the listing has changed.
func (m *Mirror) renewed(models map[string]*Model, began time.Time, err error) (changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.renewing = false
	if err != nil {
		return false
	}
	for name, model := range m.looked { // possibly newer than this listing
		if model == nil {
			delete(models, name)
		} else {
			models[name] = model // bound: Config.MaxObjects
		}
	}
	for name, l := range m.living { // a removed model may get no other copy that replaces this one
		if !l.copy.Used() {
			delete(m.living, name)
		}
	}
	changed = !maps.EqualFunc(m.models, models, sameModel)
	m.models, m.listed, m.looked = models, began, nil
	return changed
}

// Look lists one model and waits. A missing model is nil.
func (m *Mirror) Look(ctx context.Context, name string) (*Model, error) {
	model, err := m.look(ctx, name)
	if err != nil {
		m.counts.failures.Add(1)
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	models := maps.Clone(m.models) // bound: Config.MaxObjects
	if model == nil {
		delete(models, name)
	} else {
		models[name] = model
	}
	m.models = models
	if m.renewing && (model != nil || len(m.looked) < mostGone) {
		m.looked[name] = model
	}
	return model, nil
}

func (m *Mirror) look(ctx context.Context, name string) (*Model, error) {
	before := map[string]*Model{name: m.Model(name)}
	for try := 1; ; try++ {
		found, refused, err := m.objectsOf(ctx, name+"/", before)
		if err != nil {
			return nil, err
		}
		model := found[name]
		if refused != nil {
			return nil, refused
		}
		if model == nil {
			return nil, nil //nolint:nilnil // as the doc of Look says
		}
		if err := m.readTexts(ctx, found, before); err != nil {
			return nil, err
		}
		if !errors.Is(model.Fault, objectstore.ErrChanged) || try == lookTries {
			return model, nil
		}
	}
}

// list takes a listing of the location. Unchanged data is shared with before.
func (m *Mirror) list(ctx context.Context, before map[string]*Model) (map[string]*Model, error) {
	models, refused, err := m.objectsOf(ctx, "", before)
	if err != nil {
		return nil, err
	}
	if refused != nil {
		if refused.Partial { // part of some model would be served
			return nil, refused
		}
		m.refuse(models, before, refused)
	}
	if len(models) == 0 && m.config.Location.Path != "" { // a store without its volume looks the same: unload nothing
		return nil, infer.Errorf(infer.InvalidArg, "repository path is not a valid directory")
	}
	if err := m.readTexts(ctx, models, before); err != nil {
		return nil, err
	}
	return models, nil
}

// objectsOf lists the objects below a prefix by model. Unchanged models share the objects of
// before.
func (m *Mirror) objectsOf(ctx context.Context, prefix string, before map[string]*Model) (models map[string]*Model, refused *objectstore.RefusedError, err error) {
	w := m.watch(ctx)
	defer w.stop()
	defer w.limit(m.config.Log, m.config.Location, mostListing)()
	models = make(map[string]*Model) // bound: Config.MaxObjects
	count, bytes := 0, 0
	tooMany := infer.Errorf(infer.Internal, "%s has more than %d objects, the maximum for a model repository: name only the directory of the models", m.config.Location, m.config.MaxObjects)
	err = m.bucket.List(w.ctx, prefix, func(o objectstore.Object) error {
		w.listed()
		if count++; count > m.config.MaxObjects {
			return tooMany
		}
		if bytes += len(o.Key) + len(o.Version); bytes > m.config.MaxBytes {
			return m.tooLong()
		}
		name, rest, inside := strings.Cut(o.Key, "/")
		if !inside && !o.Directory { // a file beside the models
			return nil
		}
		model := models[name]
		if model == nil {
			model = &Model{Name: name}
			models[name] = model
		}
		if inside {
			o.Key = rest
			if old := before[name]; old != nil { // share the strings of before
				if was, has := old.object(rest); has && was.Version == o.Version {
					o.Key, o.Version = was.Key, was.Version
				}
			}
			model.Objects = append(model.Objects, o) // bound: Config.MaxObjects
		}
		return nil
	})
	if errors.As(err, &refused) {
		err = nil
		if count+refused.Count > m.config.MaxObjects {
			err = tooMany
		}
	}
	for name, model := range models {
		model.Objects = ordered(model.Objects)
		if old := before[name]; old != nil && slices.EqualFunc(old.Objects, model.Objects, sameListed) {
			model.Objects = old.Objects
		}
	}
	return models, refused, w.blame(err)
}

func (m *Mirror) tooLong() error {
	return infer.Errorf(infer.Internal, "the keys and configurations of %s have more than %d bytes, the maximum for a model repository: name only the directory of the models", m.config.Location, m.config.MaxBytes)
}

// ordered sorts objects by key. Stores differ in their order, and a store that changes during a
// listing may name a key twice; then the last one counts.
func ordered(list []objectstore.Object) []objectstore.Object {
	slices.SortStableFunc(list, byKey)
	kept := list[:0] // bound: list
	for i, o := range list {
		if i+1 < len(list) && byKey(o, list[i+1]) == 0 {
			continue
		}
		kept = append(kept, o)
	}
	return kept
}

// byKey sorts a directory before a file of the same key, which only a store can have.
func byKey(a, b objectstore.Object) int {
	if a.Key == b.Key && a.Directory != b.Directory {
		if a.Directory {
			return -1
		}
		return 1
	}
	return strings.Compare(a.Key, b.Key)
}

// refuse marks models with objects whose names no file can have, so that no part of a model is
// served. A model that was there before and has no other objects now is not gone: its versions
// continue to serve.
//
// bound: the names that a RefusedError keeps
func (m *Mirror) refuse(models, before map[string]*Model, refused *objectstore.RefusedError) {
	for name := range refused.Names {
		if models[name] == nil && before[name] != nil {
			models[name] = &Model{Name: name}
		}
		if model := models[name]; model != nil {
			model.Fault = refused
		}
	}
	m.warnOnce(refused)
}

// readTexts reads the configurations of models, except unchanged ones.
func (m *Mirror) readTexts(ctx context.Context, models, before map[string]*Model) error {
	var todo []*Model // bound: the models
	bytes := 0
	for _, model := range models {
		for _, o := range model.Objects {
			bytes += len(o.Key) + len(o.Version)
		}
		for _, name := range m.config.Texts {
			if model.Has(name) {
				model.TextName = name
				break
			}
		}
		if model.TextName == "" || model.Fault != nil {
			continue
		}
		now, _ := model.object(model.TextName)
		if now.Size <= maxTextBytes {
			bytes += int(now.Size)
		}
		if bytes > m.config.MaxBytes {
			return m.tooLong()
		}
		if old := before[model.Name]; old != nil && old.TextName == model.TextName && old.Fault == nil {
			if was, _ := old.object(old.TextName); same(was, now) {
				model.Text = old.Text
				continue
			}
		}
		todo = append(todo, model)
	}
	return m.inParallel(ctx, len(todo), func(ctx context.Context, i int) error {
		model := todo[i]
		o, _ := model.object(model.TextName)
		text, err := m.readText(ctx, model.Name, o)
		switch {
		case err == nil:
			model.Text = text
		case errors.Is(err, objectstore.ErrUnreachable), ctx.Err() != nil, context.Cause(ctx) != nil:
			return err // the store's fault, not the model's
		default:
			model.Fault = err
		}
		return nil
	})
}

func (m *Mirror) readText(ctx context.Context, model string, o objectstore.Object) ([]byte, error) {
	if o.Size > maxTextBytes {
		return nil, infer.Errorf(infer.Internal, "%s has %d bytes, and a configuration at most %d", m.config.Location.Join(model+"/"+o.Key), o.Size, maxTextBytes)
	}
	w := m.watch(ctx)
	defer w.stop()
	o.Key = model + "/" + o.Key
	body, err := m.bucket.Open(w.ctx, o)
	if err != nil {
		return nil, stallOf(w, err)
	}
	w.progress()
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(watchedReader{body, w}, maxTextBytes+1)) // bound: maxTextBytes
	if err == nil && int64(len(text)) != o.Size {
		err = objectstore.ErrChanged
	}
	if err != nil {
		return nil, stallOf(w, err)
	}
	m.counts.bytes.Add(uint64(len(text)))
	return text, nil
}

// stallOf is blame that marks a store as unreachable.
func stallOf(w *watch, err error) error {
	if context.Cause(w.ctx) != nil {
		return errors.Join(w.blame(err), objectstore.ErrUnreachable)
	}
	return err
}

// inParallel calls f for 0 to n-1, several at a time, until one fails. It returns the first error.
func (m *Mirror) inParallel(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	numbers := make(chan int) // closed below, after the last number or the first failure
	var all sync.WaitGroup
	for range min(m.config.Parallel, n) {
		all.Go(panics.Guard(m.config.Log, panics.Models, func() {
			for i := range numbers {
				if err := f(ctx, i); err != nil {
					end(err)
					return
				}
			}
		}, func(err error) { end(err) }))
	}
hand:
	for i := range n {
		select {
		case numbers <- i:
		case <-ctx.Done():
			break hand
		}
	}
	close(numbers)
	all.Wait()
	return context.Cause(ctx)
}
