// Command nereid_minimal is backend minimal as a plugin:
// <backend-directory>/minimal/nereid_minimal.
package main

import (
	"github.com/nereid-serving/nereid/examples/backends/minimal"
	"github.com/nereid-serving/nereid/sdk/plugin"
)

func main() { plugin.Serve(minimal.New) }
