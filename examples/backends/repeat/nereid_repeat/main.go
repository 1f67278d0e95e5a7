// Command nereid_repeat is backend repeat as a plugin: <backend-directory>/repeat/nereid_repeat.
package main

import (
	"github.com/nereid-serving/nereid/examples/backends/repeat"
	"github.com/nereid-serving/nereid/sdk/plugin"
)

func main() { plugin.Serve(repeat.New) }
