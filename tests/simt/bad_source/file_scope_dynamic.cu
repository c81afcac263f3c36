namespace lab {
extern __shared__ float tile[];
}
