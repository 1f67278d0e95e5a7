// Command nereid_recommended is backend recommended as a plugin:
// <backend-directory>/recommended/nereid_recommended.
package main

import (
	"github.com/nereid-serving/nereid/examples/backends/recommended"
	"github.com/nereid-serving/nereid/sdk/plugin"
)

func main() { plugin.Serve(recommended.New) }
