package cache

import (
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer"
)

// Version is the part of a Cache that one loaded version of a model has.
type Version struct {
	*Space
	missed func(tookNs int64)
	// ensemble is true for one, whose misses Triton counts in another way: each that
	// succeeds, also one whose response another has put in meanwhile.
	ensemble bool
	log      zerolog.Logger
	// Of responses that cannot be kept the first is logged as an error, as Triton
	// does with each.
	complain sync.Once
}

// Version makes an empty space for a version with so many outputs. Missed counts a
// request that was not found, with the nanoseconds that the cache took for it.
func (c *Cache) Version(outputs int, ensemble bool, missed func(tookNs int64), log zerolog.Logger) *Version {
	return &Version{Space: c.Space(outputs), missed: missed, ensemble: ensemble, log: log}
}

// Close drops what is kept. A nil one has nothing.
func (v *Version) Close() {
	if v != nil {
		v.Space.Close()
	}
}

// Keep counts a request that was not found, and puts in its last response if it may
// be kept: if it is whole, and no error. Lookup is how long the search took.
func (v *Version) Keep(miss Miss, lookup time.Duration, r *infer.Response, may bool) {
	var insert time.Duration
	if v.ensemble && r.Err != nil {
		return
	}
	if may {
		var err error
		insert, err = v.Insert(miss, r)
		if errors.Is(err, ErrExists) && !v.ensemble {
			return
		}
		var refused *infer.Error
		if errors.As(err, &refused) {
			v.complain.Do(func() {
				v.log.Error().Msgf("Failed to insert a response of model '%s' into response cache: %s. More of its kind are not logged.",
					r.Model, refused.Message)
			})
		}
	}
	v.missed(int64(lookup + insert))
}
