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
		settings.Number(startTimeout, "Time from the start of a process to its handshake, and again until it speaks the protocol, in seconds.", time.Second, 1, settings.MostSeconds,
			func(c *Config) *time.Duration { return &c.StubTimeout }),
	},
)

// forcedGrace gives a plugin's engine time to respond to requests that its author has forgotten,
// and to log them. The plugin waits 0.5 s (settleGrace), but may take seconds to run at all on a
// loaded machine.
const forcedGrace = 5 * time.Second

const startTimeout = "start-timeout-seconds"

// Settings describes the settings that ParseConfig knows.
func Settings() settings.Rows { return table.Rows(&Config{settings.Defaults()}) }

// ParseConfig parses the settings of the command line. Other keys belong to the plugin. Errors are
// InvalidArg.
func ParseConfig(values map[string]string) (Config, error) {
	c := Config{settings.Defaults()}
	c.CopyRegions = true
	c.Grace = forcedGrace
	if err := table.Read(&c, values); err != nil {
		return Config{}, err
	}
	return c, settings.Complete(&c.Config)
}
