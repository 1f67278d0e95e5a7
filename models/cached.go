package models

import (
	"context"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/models/cache"
	"github.com/nereid-serving/nereid/models/config"
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

// newCached returns nil if the version's responses are not cached.
func (r *Registry) newCached(l *loaded) *cache.Version {
	c := l.info.Config
	if !r.caches(c) {
		return nil
	}
	return r.config.Cache.Version(len(c.GetOutput()), c.GetEnsembleScheduling() != nil, l.statistics.CacheMiss, r.config.Log)
}

// runCached answers a request out of the cache, or has it executed and keeps the
// response.
func (l *loaded) runCached(ctx context.Context, req *infer.Request, send infer.Sender, by func(context.Context, *infer.Request, infer.Sender) error) error {
	start := backend.Now()
	found, miss, lookup := l.cache.Lookup(req)
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
			l.cache.Keep(miss, lookup, r, alone && !r.Empty && r.Err == nil)
		}
		alone = false
		send(r)
	})
}
