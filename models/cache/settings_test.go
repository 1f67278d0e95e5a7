package cache_test

import (
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/cache"
)

func TestParseSettingsReadsAndRefusesSizes(t *testing.T) {
	type settings = map[string]map[string]string
	size := func(text string) settings { return settings{"local": {"size": text}} }
	for _, test := range []struct {
		name     string
		settings settings
		size     int64
		err      string
	}{
		{"none", nil, 0, ""},
		{"plain", size("1048576"), 1 << 20, ""},
		{"as stoull reads", size(" +12345 x"), 12345, ""},
		{"least", size("192"), 192, ""},
		{"with what nobody reads", settings{"local": {"size": "300", "colour": "blue"}}, 300, ""},
		{"zero", size("0"), 0, "Internal: Failed to initialize LocalCache: Could not initialize buffer in basic_managed_external_buffer constructor"},
		{"too small", size("191"), 0, "Internal: Failed to initialize LocalCache: Could not initialize buffer in basic_managed_external_buffer constructor"},
		{"no number", size("abc"), 0, "Internal: Failed to initialize LocalCache: stoull"},
		{"a sign alone", size("-"), 0, "Internal: Failed to initialize LocalCache: stoull"},
		{"beyond 64 bits", size("99999999999999999999999"), 0, "Internal: Failed to initialize LocalCache: stoull"},
		{"negative", size("-5"), 0, "Internal: Failed to initialize LocalCache: failed to allocate buffer"},
		{"more than there is", size("1000001" + "000000"), 0, "Internal: Failed to initialize LocalCache: failed to allocate buffer"},
		{"no size", settings{"local": {"x": "5"}}, 0, "Invalid argument: Failed to initialize LocalCache: config didn't contain a valid 'size' field."},
		{"another", settings{"redis": {"host": "x"}}, 0, "Invalid argument: unable to find 'libtritoncache_redis.so' for cache. Searched: /caches"},
		{"two", settings{"redis": {"host": "x"}, "local": {"size": "4096"}}, 0,
			"Invalid argument: found multiple cache configurations, but only a single cache is currently supported"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := cache.ParseSettings(test.settings, "/caches", 1e12)
			text := ""
			if err != nil {
				text = infer.AsError(err).Status()
			}
			if got != test.size || text != test.err {
				t.Errorf("got %d and %q, want %d and %q", got, text, test.size, test.err)
			}
		})
	}
}
