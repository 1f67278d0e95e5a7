package version

import (
	"context"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/models/cache"
	"github.com/nereid-serving/nereid/models/config"
)

// metricsOf returns the metrics options of a config.
func (l *Loader) metricsOf(namespace string, c *kserve.ModelConfig) metrics.ModelOptions {
	return metrics.ModelOptions{
		Namespace: namespace, Tags: c.GetMetricTags(), Cache: l.caches(c), FirstResponse: config.FirstResponseBuckets(c),
	}
}

// caches reports whether responses of a model are cached: the server has a cache and the config
// asks for it. Decoupled models and models with sequences have been refused before.
func (l *Loader) caches(c *kserve.ModelConfig) bool {
	return l.settings.Cache != nil && c.GetResponseCache().GetEnable()
}

// newCached returns nil if the version's responses are not cached.
func (l *Loader) newCached(v *Version) *cache.Version {
	c := v.info.Config
	if !l.caches(c) {
		return nil
	}
	return l.settings.Cache.Version(len(c.GetOutput()), c.GetEnsembleScheduling() != nil, v.statistics.CacheMiss, l.settings.Log)
}

// runCached answers a request from the cache, or executes it and keeps the response.
func (v *Version) runCached(ctx context.Context, req *infer.Request, send infer.Sender, by func(context.Context, *infer.Request, infer.Sender) error) error {
	start := backend.Now()
	found, miss, lookup := v.cache.Lookup(req)
	if found != nil {
		req.Queued(start)
		v.stamp(found, req)
		v.statistics.CacheHit(backend.Now()-start, int64(lookup))
		send(found)
		return nil
	}
	alone := true
	return by(ctx, req, func(r *infer.Response) {
		v.complete(r, req)
		if r.Final {
			v.cache.Keep(miss, lookup, r, alone && !r.Empty && r.Err == nil)
		}
		alone = false
		send(r)
	})
}
