// Command server is Nereid with the tutorial's backends linked in, as an example of a custom
// server. Models name these backends in the same way as plugins. The command line is that of
// nereid.
package main

import (
	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/cli"
	"github.com/nereid-serving/nereid/examples/backends/bls"
	"github.com/nereid-serving/nereid/examples/backends/identity"
	"github.com/nereid-serving/nereid/examples/backends/minimal"
	"github.com/nereid-serving/nereid/examples/backends/recommended"
	"github.com/nereid-serving/nereid/examples/backends/repeat"
	"github.com/nereid-serving/nereid/examples/backends/square"
	"github.com/nereid-serving/nereid/examples/backends/stateful"
	"github.com/nereid-serving/nereid/examples/backends/strategy"
)

func main() {
	cli.Main(
		nereid.WithBackend("bls", bls.New),
		nereid.WithBackend("identity", identity.New),
		nereid.WithBackend("minimal", minimal.New),
		nereid.WithBackend("recommended", recommended.New),
		nereid.WithBackend("repeat", repeat.New),
		nereid.WithBackend("square", square.New),
		nereid.WithBackend("stateful", stateful.New),
		// The scheduler calls batching strategies, so they only work in linked-in backends.
		nereid.WithBackend("identity_volume", strategy.Volume(identity.New)),
		nereid.WithBackend("identity_single", strategy.Single(identity.New)),
	)
}
