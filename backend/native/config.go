package native

import (
	"slices"
	"time"

	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/process/settings"
)

// Config holds the settings of `--backend-config=<backend>,<key>=<value>` for the processes of a
// plugin. The plugin receives all keys, including these.
type Config struct{ process.Config }

// table lists the keys that the server reads. StubTimeout, the limit of the handshake and again of
// the time until HELLO, has its own key.
var table = slices.Concat(
	settings.Hosting(func(c *Config) *process.Config { return &c.Config }),
	settings.Table[Config]{
		{Key: startTimeout, Read: func(c *Config, text string) error {
			n, err := settings.Whole(startTimeout, text, 1, "the least", settings.MostSeconds)
			c.StubTimeout = time.Duration(n) * time.Second
			return err
		}},
	},
)

// forcedGrace gives a plugin's engine time to respond to requests that its author has forgotten,
// and to log them. The plugin waits 0.5 s (settleGrace), but may take seconds to run at all on a
// loaded machine.
const forcedGrace = 5 * time.Second

const startTimeout = "start-timeout-seconds"

// Settings returns the keys that ParseConfig knows.
func Settings() []string { return table.Keys() }

// ParseConfig parses the settings of the command line. Other keys belong to the plugin. Errors are
// InvalidArg.
func ParseConfig(values map[string]string) (Config, error) {
	c := Config{settings.Defaults()}
	c.CopyRegions = true
	c.Grace = forcedGrace
	if err := table.Read(&c, values); err != nil {
		return Config{}, err
	}
	settings.Complete(&c.Config)
	return c, nil
}
