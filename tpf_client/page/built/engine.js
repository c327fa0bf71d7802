var m="@python@",r="@packages@",v=+"@whole@",l=+"@sent@",g=5e3,b="compiled",i=e=>new URL(e,self.location.href).href,f=new Set,u=self.fetch.bind(self),d=null,h={state:"loading",loaded:0,total:l},p=0;function o(e){h=e;for(let t of f)t.postMessage({engine:e})}async function A(e){let t=0;for(let n=e.body.getReader(),s;!(s=await n.read()).done;)p+=s.value.byteLength,t+=s.value.byteLength,t>1e5&&h.state==="loading"&&(t=0,o({state:"loading",loaded:Math.round(l*Math.min(p/v,1)),total:l}))}async function y(e,t){let n=await u(e,t);return n.ok&&A(n.clone()).catch(()=>{}),n}async function I(){try{let e=await(await caches.open(b)).match(i(r));return e?new Uint8Array(await e.arrayBuffer()):null}catch{return null}}async function P(e){try{let t=e.runPython(S),n=t.toJs();t.destroy();let s=await caches.open(b);for(let a of await s.keys())a.url!==i(r)&&await s.delete(a);await s.put(i(r),new Response(n))}catch{}}var S=`
def compiled():
    import importlib.util, io, marshal, sys, zipfile
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, module in sorted(sys.modules.items()):
            spec = getattr(module, "__spec__", None)
            loader = getattr(spec, "loader", None)
            if not hasattr(loader, "archive") or loader.archive == "/compiled.zip":
                continue
            code = loader.get_code(spec.name)
            path = spec.name.replace(".", "/") + ("/__init__" if loader.is_package(spec.name) else "")
            head = importlib.util.MAGIC_NUMBER + bytes(12)
            archive.writestr(zipfile.ZipInfo(path + ".pyc", (1980, 1, 1, 0, 0, 0)), head + marshal.dumps(code))
    return made.getvalue()
compiled()
`,z=`
import sys
sys.path[:0] = [each for each in ("/compiled.zip", "/packages.zip") if each not in sys.path]
from tpf_client import tab
tab
`;async function k(){try{o({state:"loading",loaded:0,total:l}),p=0,self.fetch=y;let e=y(i(r)).then(c=>c.arrayBuffer()),[{loadPyodide:t},n]=await Promise.all([import(i(`${m}/pyodide.mjs`)),I()]),s=await t({indexURL:i(`${m}/`),checkAPIVersion:!1}),a=new Uint8Array(await e);self.fetch=u,o({state:"starting"}),s.FS.writeFile("/packages.zip",a),n&&s.FS.writeFile("/compiled.zip",n),d=s.runPython(z),o({state:"ready"});for(let c of f)c.waiting.splice(0).forEach(N=>_(c,N));n||setTimeout(()=>P(s),g)}catch(e){self.fetch=u,o({state:"broken",error:String(e.message??e).trim().split(`
`).at(-1)}),setTimeout(k,g)}}function _(e,t){let{id:n}=t,s=`${e.number}/${n}`;e.running.set(n,s);try{d.start(JSON.stringify({...t,id:s}),a=>{e.running.has(n)&&e.postMessage({id:n,text:a})})}catch(a){e.postMessage({id:n,text:JSON.stringify({event:"failed",data:{error:String(a.message)}})})}}function M(e,t){e.waiting=e.waiting.filter(s=>s.id!==t);let n=e.running.get(t);e.running.delete(t),n!==void 0&&d.stop(n)}function E(e){for(let t of[...e.running.keys()])M(e,t);f.delete(e)}var O=0;function w(e){Object.assign(e,{number:++O,waiting:[],running:new Map}),f.add(e),e.onmessage=({data:t})=>{t.start?d?_(e,t.start):e.waiting.push(t.start):t.stop!==void 0?M(e,t.stop):t.lock&&navigator.locks.request(t.lock,()=>E(e))},e.postMessage({engine:h})}"onconnect"in self?self.onconnect=({ports:[e]})=>w(e):w(self);k();
