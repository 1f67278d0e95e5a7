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
	// ensemble selects Triton's count of misses for ensembles: each success, even if another
	// request has inserted the response meanwhile.
	ensemble bool
	log      zerolog.Logger
	// complain guards the log of the first response that cannot be kept; Triton logs each.
	complain sync.Once
}

// Version creates an empty space for a version with the given number of outputs. missed counts a
// miss and the nanoseconds that the cache took for it.
func (c *Cache) Version(outputs int, ensemble bool, missed func(tookNs int64), log zerolog.Logger) *Version {
	return &Version{Space: c.Space(outputs), missed: missed, ensemble: ensemble, log: log}
}

// Close drops the kept responses. A nil Version has none.
func (v *Version) Close() {
	if v != nil {
		v.Space.Close()
	}
}

// Keep counts a miss and inserts the request's last response if it may be kept, that is, if it is
// complete and without an error. lookup is the duration of the search.
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
