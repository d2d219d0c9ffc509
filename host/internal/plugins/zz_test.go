package plugins
import ("testing";"time";"context";"fmt";"slices")
func TestZZ(t *testing.T) {
	r := newRig(t); r.install("driver","airlock-isolation-good")
	r.prepare.Do(func() { r.prepareErr = r.prepareDirs() })
	var a,b,c,d,e []time.Duration
	spec := specs("isolation.good.a")[0]
	for range 40 {
		t0:=time.Now()
		img, f := r.verified(spec); if f!=nil {t.Fatal(f)}
		t1:=time.Now()
		p, f := r.launch(context.Background(), spec, img); if f!=nil {t.Fatal(f)}
		t2:=time.Now()
		if f:=r.describe(context.Background(), p); f!=nil {t.Fatal(f)}
		t3:=time.Now()
		if f:=r.Catalog.configure(context.Background(), p, spec); f!=nil {t.Fatal(f)}
		t4:=time.Now()
		p.discard()
		r.images.release(img)
		a=append(a,t1.Sub(t0));b=append(b,t2.Sub(t1));c=append(c,t3.Sub(t2));d=append(d,t4.Sub(t3));e=append(e,t4.Sub(t0))
	}
	for n,x := range map[string][]time.Duration{"verify":a,"launch":b,"describe":c,"configure":d,"all":e} { slices.Sort(x); fmt.Println(n, x[0], x[len(x)/2]) }
}
