package shm

import "testing"

func TestClassSizesWasteLittle(t *testing.T) {
	for n := int64(0); n < 1<<21; n += 777 {
		size := classSize(n)
		if size < n || size%PageSize != 0 {
			t.Fatalf("classSize(%d): got %d, want a multiple of the page of at least %d", n, size, n)
		}
		if waste := size - roundUp(max(n, 1), PageSize); waste*5 > size {
			t.Fatalf("classSize(%d): got %d, which wastes %d bytes", n, size, waste)
		}
		if classSize(size) != size {
			t.Fatalf("classSize(%d): got %d, want a class of its own", size, classSize(size))
		}
	}
}

func TestPoolClosedWhileBlocksLive(t *testing.T) {
	region, err := NewRegion(Memfd{}, 1<<24, ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPool(region, PoolConfig{})
	if err != nil {
		t.Fatal(err)
	}
	b := Alloc(t, p, 10)
	p.Close()
	b.Bytes()[0] = 1 // still mapped
	if _, err := p.Alloc(1); err == nil {
		t.Fatal("Alloc on a closed pool: no error")
	}
	b.Release()
	if region.mem != nil {
		t.Fatal("the region is still mapped after the last block of a closed pool")
	}
}
