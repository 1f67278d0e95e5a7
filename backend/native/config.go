package native

import (
	"slices"
	"time"

	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/process/settings"
)

// Config is what `--backend-config=<backend>,<key>=<value>` sets of the hosting of a plugin's processes. All keys reach the
// plugin, these too.
type Config struct{ process.Config }

// table has the keys that the server reads. StubTimeout, of the handshake, and again until HELLO, has a key of its own.
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

// forcedGrace is for the engine of a plugin to answer what its author has forgotten, and to name it in the log. The plugin waits for 0.5 s of it (settleGrace),
// and on a machine under load for seconds until it runs at all.
const forcedGrace = 5 * time.Second

const startTimeout = "start-timeout-seconds"

// Settings lists the keys that ParseConfig knows.
func Settings() []string { return table.Keys() }

// ParseConfig reads the settings of the command line; other keys are the plugin's own. Errors are InvalidArg.
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
