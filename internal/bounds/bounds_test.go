package bounds_test

import (
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/bounds"
)

type config struct {
	Calls int
	Bytes int64
	Grace time.Duration
}

func (c *config) bounds() bounds.Table {
	return bounds.Table{
		bounds.Of("Calls", &c.Calls, 5, 2, 9),
		bounds.Of("Bytes", &c.Bytes, 6, 1, 100),
		bounds.Of("Grace", &c.Grace, 0, 0, time.Minute),
	}
}

func TestDefaultsReplaceOnlyZeros(t *testing.T) {
	c := config{Bytes: 7}
	c.bounds().SetDefaults()
	if want := (config{Calls: 5, Bytes: 7}); c != want {
		t.Errorf("got %+v, want %+v", c, want)
	}
}

func TestValidateNamesTheFieldAndItsBounds(t *testing.T) {
	for _, test := range []struct {
		config config
		want   string // "" if it is valid
	}{
		{config{}, ""},
		{config{2, 1, 0}, ""},
		{config{9, 100, time.Minute}, ""},
		{config{Calls: 1}, "Calls is 1, want 2 to 9, or 0 for the default"},
		{config{Calls: 10}, "Calls is 10, want 2 to 9, or 0 for the default"},
		{config{Bytes: -1}, "Bytes is -1, want 1 to 100, or 0 for the default"},
		{config{Grace: -time.Second}, "Grace is -1s, want 0s to 1m0s"},
		{config{Grace: time.Hour}, "Grace is 1h0m0s, want 0s to 1m0s"},
	} {
		got := ""
		if err := test.config.bounds().Validate(); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%+v: got %q, want %q", test.config, got, test.want)
		}
	}
}
