// Command nereid_stateful is backend stateful as a plugin:
// <backend-directory>/stateful/nereid_stateful.
package main

import (
	"github.com/nereid-serving/nereid/examples/backends/stateful"
	"github.com/nereid-serving/nereid/sdk/plugin"
)

func main() { plugin.Serve(stateful.New) }
