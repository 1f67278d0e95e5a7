// Command nereid_square is backend square as a plugin: <backend-directory>/square/nereid_square.
package main

import (
	"github.com/nereid-serving/nereid/examples/backends/square"
	"github.com/nereid-serving/nereid/sdk/plugin"
)

func main() { plugin.Serve(square.New) }
