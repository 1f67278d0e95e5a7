package cache

// Names for the tests in package cache_test.

const MostUnpacking = mostUnpacking

// SetStep sets the function that is called before each step of making an environment.
func (c *Cache) SetStep(step func(name string) error) { c.step = step }

// Unpacking has a value for each archive that is being unpacked.
func (c *Cache) Unpacking() chan struct{} { return c.unpacks }
