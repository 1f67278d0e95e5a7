package models

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/models/cache"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/statistics"
)

// metricsOf returns what a config says of the metrics of its model.
func (r *Registry) metricsOf(namespace string, c *kserve.ModelConfig) metrics.ModelOptions {
	return metrics.ModelOptions{
		Namespace: namespace, Tags: c.GetMetricTags(), Cache: r.caches(c), FirstResponse: config.FirstResponseBuckets(c),
	}
}

// caches reports whether responses of a model are cached: the server has a cache
// and the config asks for it. Models that answer any number of times, and those
// of sequences, have been refused before.
func (r *Registry) caches(c *kserve.ModelConfig) bool {
	return r.config.Cache != nil && c.GetResponseCache().GetEnable()
}

// cached is the part of the response cache that one loaded version has.
type cached struct {
	space      *cache.Space
	statistics *statistics.Version
	// ensemble is true for one, whose misses Triton counts in another way: each that
	// succeeds, also one whose answer another has put in meanwhile.
	ensemble bool
	log      zerolog.Logger
	// Of responses that cannot be kept the first is logged as an error, as Triton
	// does with each.
	complain sync.Once
}

// newCached returns nil if the version's responses are not cached.
func (r *Registry) newCached(l *loaded) *cached {
	c := l.info.Config
	if !r.caches(c) {
		return nil
	}
	return &cached{
		space: r.config.Cache.Space(len(c.GetOutput())), statistics: l.statistics,
		ensemble: c.GetEnsembleScheduling() != nil, log: r.config.Log,
	}
}

// close drops what is kept. A nil one has nothing.
func (c *cached) close() {
	if c != nil {
		c.space.Close()
	}
}

// runCached answers a request out of the cache, or has it executed and keeps the
// response.
func (l *loaded) runCached(ctx context.Context, req *infer.Request, send infer.Sender, by func(context.Context, *infer.Request, infer.Sender) error) error {
	start := backend.Now()
	found, miss, lookup := l.cache.space.Lookup(req)
	if found != nil {
		l.stamp(found, req)
		l.statistics.CacheHit(backend.Now()-start, int64(lookup))
		send(found)
		return nil
	}
	alone := true
	return by(ctx, req, func(r *infer.Response) {
		l.complete(r, req)
		if r.Final {
			l.cache.keep(miss, lookup, r, alone && !r.Empty && r.Err == nil)
		}
		alone = false
		send(r)
	})
}

// keep counts a request that was not found, and puts in the response if it is one
// that may be kept: whole, and no error.
func (c *cached) keep(miss cache.Miss, lookup time.Duration, r *infer.Response, may bool) {
	var insert time.Duration
	if c.ensemble && r.Err != nil {
		return
	}
	if may {
		var err error
		insert, err = c.space.Insert(miss, r)
		if errors.Is(err, cache.ErrExists) && !c.ensemble {
			return
		}
		var refused *infer.Error
		if errors.As(err, &refused) {
			c.complain.Do(func() {
				c.log.Error().Msgf("Failed to insert a response of model '%s' into response cache: %s. More of its kind are not logged.",
					r.Model, refused.Message)
			})
		}
	}
	c.statistics.CacheMiss(int64(lookup + insert))
}
